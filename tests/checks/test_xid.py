"""Xids, SXids and peer memory's errors of the kernel's log: the catalogue, the driver's own word, a site's word."""

from typing import Any

import pytest

from nodectl.checks.check import ACTIONS
from nodectl.checks.gpu import xid
from nodectl.checks.gpu.xid import STATUSES, catalogue, check_site_xid, meaning
from nodectl.facts.lab import Lab
from nodectl.parsers.linux.dmesg import Dmesg, parse_dmesg
from tests.checks.gpus import eight
from tests.checks.table import ABSENT, UNREAD, Case, dgx, found, missing, plain, verify

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
        ((54,), "failed", "replace"),
        ((9999,), "warning", "none"),
        ((NVLINK5.format("Fatal"),), "failed", "reset GPU"),
        ((NVLINK5.format("Nonfatal"),), "warning", "none"),
        ((95, recovery(2, "Node Reboot Required")), "failed", "reboot"),
        ((94, recovery(4, "Drain and Reset")), "failed", "drain"),
        ((95, recovery(1, "GPU Reset Required"), recovery(0, "None")), "warning", "none"),
        ((95, recovery(9, "Something New")), "failed", "drain"),
    ),
    Case("xid", "failed", log(79), subject=f"Xid 79 {PLACE}"),
    Case("xid", "failed", said("NVRM: GPU 0000:77:00.0: GPU has fallen off the bus."), subject=f"Xid 79 {PLACE}"),
    Case("xid", "warning", log(79), variables=site(status="warning", action="drain"), action="drain"),
    Case("xid", "ok", log(79), variables=site(status="ok")),
    Case("xid", "nothing", log(79), plain(gpus=0)),
    Case("xid", "nothing", {**log(79), "lab": Lab("lab", ("kernel",))}),
    Case("xid", "failed", {**log(79), "lab": Lab("lab", ("kernel",), "dgx-a100")}),
    Case("xid", "unknown", {"kernel_events": UNREAD}),
    Case("sxid", "ok", log()),
    Case("sxid", "warning", said("nvidia-nvswitch2: SXid (PCI:0000:85:00.0): 12028, Non-fatal, Link 61 egress")),
    Case("sxid", "failed", said("nvidia-nvswitch2: SXid (PCI:0000:85:00.0): 20034, Fatal, Link 30"), action="reboot"),
    Case("sxid", "unknown", {"kernel_events": UNREAD}),
    Case("peermem", "ok", log()),
    Case(
        "peermem",
        "warning",
        said("nvidia-peermem nv_get_p2p_free_callback:127 ERROR detected invalid context, skipping further processing"),
    ),
    Case("peermem", "unknown", {"kernel_events": UNREAD}),
    Case("kernel_log", "ok", log()),
    Case("kernel_log", "unknown", {"kernel_events": UNREAD}),
    Case("kernel_log", "unknown", {"kernel_events": ABSENT}, dgx()),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=str)
def test_each_check(case: Case) -> None:
    verify(xid, case)


def test_every_check_has_all_its_cases() -> None:
    # that the log was read is all that kernel_log is about
    assert missing(xid, CASES) == {"kernel_log: fires"}


def test_one_finding_for_a_number_on_a_card_however_often_it_came() -> None:
    facts = {**eight(), **log(94, 94, 94, 63)}
    ours = [each for each in found(xid, Case("", "", facts)) if each.check == "xid"]
    assert [each.subject for each in ours] == [f"Xid 63 {PLACE}", f"Xid 94 {PLACE}"]
    assert "3 times since boot" in ours[1].actual and "NVIDIA: RESTART_APP" in ours[1].actual
    assert "UUID GPU-7" in ours[1].evidence and "Xid (PCI:0000:77:00): 94" in ours[1].evidence
    # where catalogues disagree, each is named
    assert "aws watches it" in ours[0].actual and "azure" in ours[0].actual


def test_the_drivers_word_is_for_its_own_card_only() -> None:
    here, there = log(95, recovery(2, "Node Reboot Required")), log(95, place="0000:07:00")
    events = parse_dmesg(BOOTED).events + here["kernel_events"].events + there["kernel_events"].events  # type: ignore[attr-defined]
    facts = {"kernel_events": Dmesg(events)}
    actions = {each.subject: each.action for each in found(xid, Case("", "", facts)) if each.check == "xid"}
    assert actions == {"Xid 95 0000:07:00": "reset GPU", f"Xid 95 {PLACE}": "reboot", f"Xid 154 {PLACE}": "reboot"}


def test_the_catalogue_is_whole() -> None:
    known = catalogue()
    # every number that NVIDIA, gpud, Azure or Imbue treats as a fault of hardware
    hardware = {
        46,
        48,
        56,
        57,
        58,
        62,
        63,
        64,
        65,
        68,
        69,
        73,
        74,
        79,
        80,
        81,
        92,
        94,
        95,
        110,
        119,
        120,
        140,
        143,
        154,
    }
    assert hardware | set(range(122, 126)) | set(range(144, 151)) <= set(known)
    for number, entry in known.items():
        assert entry.status in STATUSES and entry.action in ACTIONS, number
        assert entry.title and entry.remedy and entry.nvidia, number
        assert entry.status != "ok" or entry.action == "none", number
    for disputed in (13, 63, 94, 93):
        assert known[disputed].others, disputed


def test_a_sites_word_goes_before_the_catalogue_and_adds_to_it() -> None:
    own = {63: {"status": "failed", "action": "drain"}, "9999": {"title": "our own", "status": "ok"}}
    assert (meaning(63, own).status, meaning(63, own).title) == ("failed", meaning(63).title)
    assert meaning(63, own).others == "set by this site" and meaning(63, own).nvidia == meaning(63).nvidia
    assert (meaning(9999, own).title, meaning(9999, own).action) == ("our own", "none")
    check_site_xid(own)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ([79], "xid: give a number and its fields"),
        ({"seventy": {}}, "xid.seventy: 'seventy' is no number of an Xid"),
        ({79: "drain"}, "xid.79: give its fields"),
        ({79: {"acton": "drain"}}, "xid.79.acton: no such field"),
        ({79: {"nvidia": "IGNORE"}}, "xid.79.nvidia: no such field"),
        ({79: {"status": "bad"}}, "xid.79.status: 'bad' is none of ok, warning, failed"),
        ({79: {"action": "kick"}}, "xid.79.action: 'kick' is none of none, restart job"),
    ],
)
def test_a_sites_typo_is_refused_with_its_path(given: object, said: str) -> None:
    with pytest.raises(ValueError, match=said.replace("[", r"\[")):
        check_site_xid(given)
