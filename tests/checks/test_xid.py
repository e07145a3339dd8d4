"""Xids, SXids and peer memory's errors of the kernel's log: the catalogue, the driver's own word, a site's word."""

from typing import Any

import pytest

from nodectl.checks.check import ACTIONS
from nodectl.checks.gpu import xid
from nodectl.checks.gpu.xid import catalogue, meaning
from nodectl.facts.gpus import Gpus
from nodectl.facts.look import Lab
from nodectl.facts.parsers.linux.dmesg import Dmesg, parse_dmesg
from tests.checks.gpus import eight
from tests.checks.table import ABSENT, DENIED, UNREAD, Case, dgx, found, plain, quiet

PLACE = "0000:77:00"
BOOTED = "[    0.000000] Linux version 5.15.0\n"


def log(*codes: int | str, place: str = PLACE) -> dict[str, object]:
    """The log with these Xids, as the driver writes them; a text is what follows the place."""
    rest = [str(code) if isinstance(code, str) else f"{code}, pid=4242, name=python3, text" for code in codes]
    lines = [f"[ {number}.5] NVRM: Xid (PCI:{place}): {text}\n" for number, text in enumerate(rest, 100)]
    return {"kernel_events": parse_dmesg(BOOTED + "".join(lines))}


def said(text: str) -> dict[str, object]:
    return {"kernel_events": parse_dmesg(f"{BOOTED}[ 5.0] {text}\n")}


def recovery(number: int, word: str) -> str:
    return f"154, pid='<unknown>', name=<unknown>, GPU recovery action changed from 0x0 (None) to {number:#x} ({word})"


def site(**entry: str) -> dict[str, Any]:
    return {"nodectl_health": {"xid": {79: entry}}}


def xids(*statuses_of: tuple[tuple[int | str, ...], str, str]) -> list[Case]:
    """Of each: what came, the status and the action of what came last."""
    return [Case("xid", status, log(*codes), action=action) for codes, status, action in statuses_of]


NVLINK5 = "149, NETIR_LINK_EVT {} XC0 i0 Link 08 (0x004505c6 0x00000000 0x00000000 0x00000000 0x00000000 0x00000000)"


def link(code: int, unit: str, word: str, bits: int, status: int) -> str:
    return f"{code}, {unit} {word} XC0 i0 Link 08 (0x{bits:08x} 0x{status:08x} 0x00000000 0x00000000)"


def driver(version: str) -> dict[str, object]:
    return {"gpus": Gpus(0, (), driver_version=version)}


CASES = [
    *xids(
        ((), "ok", "none"),
        ((79,), "failed", "reboot"),
        ((48,), "failed", "reset GPU"),
        ((63,), "warning", "reset GPU"),
        ((64,), "failed", "reset GPU"),
        ((74,), "failed", "reset GPU"),
        ((94,), "warning", "restart job"),
        ((95,), "failed", "reset GPU"),
        ((119,), "failed", "reset GPU"),
        ((13,), "warning", "restart job"),
        ((45,), "ok", "none"),
        ((54,), "failed", "drain"),
        ((9999,), "warning", "none"),
        # by the bits, whatever word is printed
        ((NVLINK5.format("Fatal"),), "failed", "reset GPU"),
        ((NVLINK5.format("Nonfatal"),), "failed", "reset GPU"),
        ((link(149, "NETIR_LINK_EVT", "Fatal", 0x02600011, 0),), "warning", "none"),
        ((link(145, "RLW_SRC_TRACK", "Fatal", 0x07, 2),), "ok", "none"),
        ((link(145, "RLW_REMAP", "Nonfatal", 0x04, 0x40),), "failed", "reset GPU"),
        ((link(145, "RLW_REMAP", "Nonfatal", 0x04, 1),), "warning", "restart job"),
        ((link(145, "RLW_REMAP", "Nonfatal", 0x04, 0x41),), "failed", "reset GPU"),
        ((link(144, "SAW_MVB", "Fatal", 0x01, 4),), "ok", "none"),
        # bits that NVIDIA's table has not: by the word
        ((link(149, "NETIR_LINK_EVT", "Fatal", 0x03F00011, 0),), "failed", "reset GPU"),
        ((link(149, "NETIR_LINK_EVT", "Nonfatal", 0x03F00011, 0),), "warning", "none"),
        (("149, NETIR_LINK_EVT",), "warning", "none"),
        ((60,), "warning", "restart job"),
        ((61,), "failed", "reset GPU"),
        ((106,), "ok", "none"),
        ((107,), "ok", "none"),
        ((168,), "failed", "drain"),
        *(((code,), "warning", "restart job") for code in (47, 65, 73, 142)),
        ((163,), "warning", "none"),
        ((165,), "warning", "drain"),
        ((141,), "ok", "none"),
        ((159,), "warning", "restart job"),
        ((87,), "warning", "none"),
        (("46",), "failed", "reset GPU"),
        ((95, recovery(2, "Node Reboot Required")), "failed", "reboot"),
        ((94, recovery(4, "Drain and Reset")), "failed", "drain"),
        ((95, recovery(1, "GPU Reset Required"), recovery(0, "None")), "warning", "none"),
        ((95, recovery(9, "Something New")), "failed", "drain"),
    ),
    # below R575 the unit stands in ten bits, from then on in seven
    Case("xid", "failed", {**log(link(149, "NETIR_LINK_EVT", "Nonfatal", 0x1C6, 0)), **driver("570.86.15")}),
    Case("xid", "warning", {**log(link(149, "NETIR_LINK_EVT", "Nonfatal", 0x1C6, 0)), **driver("580.95.05")}),
    Case("xid", "failed", {**log(link(149, "NETIR_LINK_EVT", "Nonfatal", 0x011, 0)), **driver("580.95.05")}),
    Case("xid", "failed", log(79), subject=f"Xid 79 {PLACE}"),
    Case("xid", "failed", said("NVRM: GPU 0000:77:00.0: GPU has fallen off the bus."), subject=f"Xid 79 {PLACE}"),
    Case("xid", "warning", log(79), variables=site(status="warning", action="drain"), action="drain"),
    Case("xid", "ok", log(79), variables=site(status="ok")),
    Case("xid", "nothing", log(79), plain(gpus=0)),
    Case("xid", "nothing", {**log(79), "lab": Lab("lab", ("kernel",))}),
    Case("xid", "failed", {**log(79), "lab": Lab("lab", ("kernel",), "dgx-a100")}),
    Case("sxid", "warning", said("nvidia-nvswitch2: SXid (PCI:0000:85:00.0): 12028, Non-fatal, Link 61 egress")),
    Case("sxid", "failed", said("nvidia-nvswitch2: SXid (PCI:0000:85:00.0): 20034, Fatal, Link 30"), action="reboot"),
    # its line does not say how grave it is: NVIDIA's list does
    Case("sxid", "failed", said("nvidia-nvswitch2: SXid (PCI:0000:85:00.0): 23001, Link 30 overflow"), action="reboot"),
    Case("sxid", "failed", said("nvidia-nvswitch2: SXid (PCI:0000:85:00.0): 20034, Link 30 LTSSM Fault Up")),
    Case("sxid", "warning", said("nvidia-nvswitch2: SXid (PCI:0000:85:00.0): 22013, Link 30 DLREQ")),
    Case(
        "peermem",
        "warning",
        said("nvidia-peermem nv_get_p2p_free_callback:127 ERROR detected invalid context, skipping further processing"),
    ),
    Case("kernel_log", "failed", {"kernel_events": UNREAD}, dgx()),
    Case("kernel_log", "failed", {"kernel_events": ABSENT}, dgx()),
    Case("kernel_log", "unknown", {"kernel_events": DENIED}, dgx()),
    Case("kernel_log", "unknown", {"kernel_events": Dmesg((), 1, "line 3: NVRM: Xid (PCI:0000:0f:0")}, dgx()),
    Case("kernel_log", "unknown", {"kernel_events": Dmesg((), is_part=True)}, dgx()),
]  # fmt: skip


QUIET = quiet(log(), checks="sxid peermem kernel_log")


def test_one_finding_for_a_number_on_a_card_however_often_it_came() -> None:
    facts = {**eight(), **log(94, 94, 94, 63)}
    ours = [each for each in found(xid, Case("", "", facts)) if each.check == "xid"]
    assert [each.subject for each in ours] == [f"Xid 63 {PLACE}", f"Xid 94 {PLACE}"]
    assert "3 times since boot" in ours[1].actual and "NVIDIA: RESTART_APP" in ours[1].actual
    assert "UUID GPU-7" in ours[1].evidence and "Xid (PCI:0000:77:00): 94" in ours[1].evidence
    # where catalogues disagree, each is named
    assert "aws watches it" in ours[0].actual and "azure" in ours[0].actual


def test_a_switchs_error_names_its_link_or_says_that_it_cannot() -> None:
    def told(rest: str) -> str:
        facts = said(f"nvidia-nvswitch2: SXid (PCI:0000:85:00.0): {rest}")
        return next(each.actual for each in found(xid, Case("", "", facts)) if each.check == "sxid")

    assert "on link 30" in told("20034, Fatal, Link 30 LTSSM Fault Up")
    assert "its lines name no link" in told("10001, Non-fatal, Host_priv_error")
    assert "NVIDIA's list does not have it" in told("99999, Fatal, Link 3 new")


@pytest.mark.parametrize("code", range(144, 151))
@pytest.mark.parametrize("word", ["Nonfatal", "Fatal", ""])
@pytest.mark.parametrize("bits", [0x1, 0x3F00001])
def test_what_is_said_of_a_link_is_what_the_line_names(code: int, word: str, bits: int) -> None:
    def told(at: str) -> str:
        line = f"{code}, SAW_MVB {word} XC0 i0 Link {at} (0x{bits:08x} 0x00000001 0x00000000)"
        (ours,) = [each for each in found(xid, Case("", "", log(line))) if each.check == "xid"]
        return f"{ours.actual} | {ours.remedy}"

    assert "on link 08" in told("08") and "nvlink -e" not in told("08")
    assert "names no link" in told("-1") and "that link" not in told("-1") and "names the link" not in told("-1")


def test_the_drivers_word_is_for_its_own_card_only() -> None:
    here, there = log(95, recovery(2, "Node Reboot Required")), log(95, place="0000:07:00")
    events = parse_dmesg(BOOTED).events + here["kernel_events"].events + there["kernel_events"].events  # type: ignore[attr-defined]
    facts = {"kernel_events": Dmesg(events)}
    actions = {each.subject: each.action for each in found(xid, Case("", "", facts)) if each.check == "xid"}
    assert actions == {"Xid 95 0000:07:00": "reset GPU", f"Xid 95 {PLACE}": "reboot", f"Xid 154 {PLACE}": "reboot"}


def test_the_catalogue_is_whole() -> None:
    known = catalogue()
    assert set(range(1, 177)) <= set(known), "every number that NVIDIA lists"
    for number, entry in known.items():
        assert entry.status in ("ok", "warning", "failed") and entry.action in ACTIONS, number
        assert entry.title and entry.remedy and entry.nvidia, number
        assert entry.status == "ok" or entry.remedy != "nothing to do", number
        assert entry.status != "ok" or entry.action == "none", number
    for disputed in (13, 63, 94, 93):
        assert known[disputed].others, disputed


def test_a_sites_word_goes_before_the_catalogue_and_adds_to_it() -> None:
    own = {63: {"status": "failed", "action": "drain"}, 9999: {"title": "our own", "status": "ok"}}
    assert (meaning(63, own).status, meaning(63, own).title) == ("failed", meaning(63).title)
    assert meaning(63, own).others == "set by this site" and meaning(63, own).nvidia == meaning(63).nvidia
    assert (meaning(9999, own).title, meaning(9999, own).action) == ("our own", "none")


@pytest.mark.parametrize(
    ("pending", "action"),
    [({"remap_pending": True}, "reset GPU"), ({"remap_pending": False}, "none"), (None, "reset GPU")],
)
def test_a_remapped_row_asks_for_a_reset_where_one_is_pending(pending: dict[str, Any] | None, action: str) -> None:
    gpu = {} if pending is None else eight(bus_id=f"{PLACE}.0", **pending)
    (finding,) = [each for each in found(xid, Case("", "", {**gpu, **log(63)})) if each.check == "xid"]
    assert finding.action == action
