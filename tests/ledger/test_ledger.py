"""The journal: what is kept of parts, who is cordoned, what is recognised elsewhere, and what brings a host back."""

import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from nodectl.ledger.events import EventKind
from nodectl.ledger.history.database import FILE, HistoryError
from nodectl.ledger.store import Ledger
from nodectl.model.acceptance import NodeVerdict, Part, PartKind, Seen
from nodectl.model.status import Status
from tests.ledger.kept import accepted, finding, parts

OK, FAILED = Status.OK, Status.FAILED
NODE02, NODE07 = parts("dgx-a100", "node02"), parts("dgx-a100", "node07")
# GPU 1 of node02 is GPU 3 of node07 now: an edited recording
BAD = NODE02[2]
MOVED = parts("dgx-a100", "node07", {NODE07[4].id: BAD.id})


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with Ledger(tmp_path / FILE, "fleet") as opened:
        yield opened


def rejected(ledger: Ledger) -> None:
    seen = [
        Seen("gemm", finding("node02", "GPU 1, bf16")),
        Seen("gemm", finding("node02", "GPU 1, fp32", OK)),
        Seen("reach", finding("node02", "/dev/shm", Status.WARNING, "shm_free")),
        Seen("gemm", finding("node07", "GPU 2, bf16", Status.UNKNOWN)),
    ]
    steps = {"node02": {"reach": Status.WARNING, "gemm": FAILED}, "node07": {"reach": OK, "gemm": Status.UNKNOWN}}
    ledger.record(accepted({"node02": NODE02, "node07": NODE07}, steps, seen))


def test_what_was_found_stays_with_the_part(ledger: Ledger) -> None:
    rejected(ledger)
    (event,) = ledger.life_of_part((PartKind.GPU, BAD.id))
    assert (event.kind, event.host, event.verdict, event.acceptance) == ("seen", "node02", NodeVerdict.REJECTED, "a1")
    assert [seen.finding.subject for seen in event.parts[0].findings] == ["GPU 1, bf16"]
    assert event.parts[0].part == BAD and event.failed == ("gemm",)
    host, *others = ledger.life_of_host("node02")[0].parts
    assert [(seen.step, seen.finding.check) for seen in host.findings] == [("reach", "shm_free")]
    assert [kept.part for kept in others if kept.findings] == [BAD]
    assert [kept.part for kept in ledger.life_of_host("node07")[0].parts if kept.findings] == [NODE07[3]]
    assert ledger.parts_in("node02") == tuple(sorted(NODE02, key=lambda part: (part.kind, part.id)))


def test_a_cordoned_host_is_named_until_it_returns(ledger: Ledger) -> None:
    rejected(ledger)
    cordon = ledger.cordon("node02", NODE02, "wrong bits", "me@here", acceptance="a1", when=2000.0)
    holds = ledger.cordoned(["node07", "node02"])
    assert list(holds) == ["node02"]
    (hold,) = holds["node02"]
    assert hold.whole and len(hold.parts) == len(NODE02)
    assert hold.text.startswith("node02 is cordoned since 1970-01-01 ") and hold.text.endswith(": wrong bits")
    assert ledger.recognised(NODE02) == ()
    back = ledger.return_(hold, "replaced", "me@here")
    assert (back.kind, back.cordon) == (EventKind.RETURNED, cordon.id)
    assert ledger.cordoned(["node02"]) == {} and ledger.open_cordons() == ()
    kinds = [event.kind for event in ledger.life_of_part((PartKind.GPU, BAD.id))]
    assert kinds == [EventKind.SEEN, EventKind.CORDONED, EventKind.RETURNED]


def test_a_part_that_moved_is_recognised_and_holds_its_new_host(ledger: Ledger) -> None:
    rejected(ledger)
    ledger.cordon("node02", NODE02, "wrong bits", "me@here", when=2000.0)
    (found,) = ledger.recognised(MOVED)
    assert (found.now.place, found.then.place) == ("GPU 3 at 0000:4e:00.0", "GPU 1 at 0000:0f:00.0")
    assert found.text.startswith(f"{BAD.id} in node07 (GPU 3) was cordoned on 1970-01-01 ")
    assert found.text.endswith(" as GPU 1 of node02: wrong bits")
    # nobody has looked yet: its new host is not known
    assert list(ledger.cordoned(["node02", "node07"])) == ["node02"]
    ledger.saw("node07", MOVED)
    holds = ledger.cordoned(["node02", "node07"])
    assert [hold.whole for hold in holds["node07"]] == [False]
    assert holds["node07"][0].text.startswith(f"node07 has GPU 1 of node02 ({BAD.id}), cordoned since")
    assert BAD not in holds["node02"][0].parts and len(holds["node02"][0].parts) == len(NODE02) - 1


def test_what_was_taken_out_stays_cordoned_when_its_host_returns(ledger: Ledger) -> None:
    rejected(ledger)
    ledger.cordon("node02", NODE02, "wrong bits", "me@here", when=2000.0)
    repaired = parts("dgx-a100", "node02", {BAD.id: "GPU-00000000-0000-0000-0000-00000000beef"})
    ledger.record(accepted({"node02": repaired}, {"node02": {"gemm": OK}}, number="a2", began=3000.0))
    (hold,) = ledger.cordoned(["node02"])["node02"]
    assert ledger.lacking(hold) == ""
    ledger.return_(hold, "", "me@here")
    assert ledger.cordoned(["node02"]) == {}
    assert [found.then for found in ledger.recognised(MOVED)] == [BAD]
    assert [[kept.part for kept in cordon.parts] for cordon in ledger.open_cordons()] == [[BAD]]


def test_a_whole_host_is_recognised_under_another_name(ledger: Ledger) -> None:
    ledger.cordon("node02", NODE02, "board", "me@here")
    renamed = [replace(part, host="node99") for part in NODE02]
    found = ledger.recognised(renamed)
    assert len(found) == len(NODE02)
    assert found[0].text.startswith(f"{NODE02[0].id} in node99 was cordoned on ") and " as node02: " in found[0].text
    ledger.saw("node99", renamed)
    assert list(ledger.cordoned(["node99"])) == ["node99"]


def test_two_hosts_with_one_identity_are_told_and_not_merged(ledger: Ledger) -> None:
    first, second = parts("rtx4090-3", "n1"), parts("rtx4090-3", "n2")
    second = (replace(second[0], id=first[0].id), *second[1:])
    seen = [Seen("reach", finding("n2", "/dev/shm"))]
    steps = {"n1": {"reach": OK}, "n2": {"reach": FAILED}}
    (line,) = ledger.record(accepted({"n1": first, "n2": second}, steps, seen))
    assert line.startswith("n1, n2 have the same machine-id ")
    assert ledger.life_of_part((PartKind.HOST, first[0].id)) == ()
    # its findings are kept under its name
    host = ledger.life_of_host("n2")[0].parts[0]
    assert host.part == Part(PartKind.HOST, "name:n2", "n2") and len(host.findings) == 1
    assert ledger.life_of_host("n1")[0].parts[0].findings == ()


def test_names_belong_to_their_fleet_and_parts_to_none(ledger: Ledger, tmp_path: Path) -> None:
    ledger.cordon("node02", NODE02, "wrong bits", "me@here")
    with Ledger(tmp_path / FILE, "other fleet") as other:
        assert other.cordoned(["node02"]) == {} and other.hosts() == ()
        assert len(other.recognised(NODE02)) == len(NODE02)
        other.saw("gpu1", NODE02)
        assert list(other.cordoned(["gpu1"])) == ["gpu1"]
    # the same machine in two inventories: one does not take it from the other
    ledger.saw("node02", NODE02)
    with Ledger(tmp_path / FILE, "other fleet") as other:
        assert list(other.cordoned(["gpu1"])) == ["gpu1"]


@pytest.mark.parametrize(
    ("began", "steps", "missing"),
    [
        (3000.0, {"reach": OK, "gemm": OK}, ""),
        (3000.0, {"gemm": Status.WARNING}, ""),
        (1500.0, {"gemm": OK}, "no acceptance of it since it was cordoned on"),
        (3000.0, {"reach": OK}, "gemm failed before and has not passed since"),
        (3000.0, {"gemm": FAILED}, "gemm failed before and has not passed since"),
        (3000.0, {"gemm": Status.UNKNOWN}, "gemm failed before and has not passed since"),
        (3000.0, {"gemm": OK, "memory": FAILED}, "its last acceptance rejected it: memory"),
    ],
)
def test_what_brings_a_host_back(ledger: Ledger, began: float, steps: dict[str, Status], missing: str) -> None:
    rejected(ledger)
    ledger.cordon("node02", NODE02, "wrong bits", "me@here", when=2000.0)
    (hold,) = ledger.cordoned(["node02"])["node02"]
    assert ledger.lacking(hold).startswith("no acceptance of it since")
    ledger.record(accepted({"node02": NODE02}, {"node02": steps}, number="a2", began=began))
    assert ledger.lacking(hold).startswith(missing) and bool(ledger.lacking(hold)) == bool(missing)


def test_without_a_failed_step_the_host_must_be_accepted(ledger: Ledger) -> None:
    ledger.cordon("node02", NODE02, "noise", "me@here", when=2000.0)
    (hold,) = ledger.cordoned(["node02"])["node02"]
    ledger.record(accepted({"node02": NODE02}, {"node02": {"gemm": Status.UNKNOWN}}, number="a2", began=3000.0))
    assert ledger.lacking(hold) == "its last acceptance says: could not tell"
    ledger.record(accepted({"node02": NODE02}, {"node02": {"gemm": OK}}, number="a3", began=4000.0))
    assert ledger.lacking(hold) == ""


def test_a_moved_part_is_proven_where_it_is(ledger: Ledger) -> None:
    rejected(ledger)
    ledger.cordon("node02", [BAD], "wrong bits", "me@here", whole=False, when=2000.0)
    ledger.record(accepted({"node07": MOVED}, {"node07": {"reach": OK}}, number="a2", began=3000.0))
    (hold,) = ledger.cordoned(["node07"])["node07"]
    assert ledger.lacking(hold).startswith("gemm failed before")
    ledger.record(accepted({"node07": MOVED}, {"node07": {"gemm": OK}}, number="a3", began=4000.0))
    assert ledger.lacking(hold) == ""
    ledger.return_(hold, "", "me@here")
    assert ledger.open_cordons() == () and ledger.recognised(MOVED) == ()


def test_a_damaged_row_is_said(ledger: Ledger, tmp_path: Path) -> None:
    rejected(ledger)
    with sqlite3.connect(tmp_path / FILE) as other:
        other.execute("UPDATE ledger_part SET findings = '[{\"step\": 1}]' WHERE part = ?", (BAD.id,))
    with pytest.raises(HistoryError, match="is damaged"):
        ledger.life_of_host("node02")
    with sqlite3.connect(tmp_path / FILE) as other:
        other.execute("UPDATE ledger_event SET kind = 'seen', verdict = 'fine'")
    with pytest.raises(HistoryError, match="is damaged: 'fine'"):
        ledger.acceptances("fleet", "node07")
