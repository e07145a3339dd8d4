"""The journal: what is kept of hosts, who is cordoned, and what brings a host back."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from nodectl.ledger.history.database import FILE
from nodectl.ledger.store import EventKind, Ledger, lacking
from nodectl.model.acceptance import NodeVerdict
from nodectl.model.status import Status
from tests.ledger.kept import GPU, WRONG, accepted

OK, FAILED = Status.OK, Status.FAILED


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with Ledger(tmp_path / FILE, "fleet") as opened:
        yield opened


def rejected(ledger: Ledger) -> None:
    ledger.record(accepted({"node02": {"health": Status.WARNING, "gemm": FAILED}, "node07": {"gemm": OK}}))


def test_what_an_acceptance_said_is_kept_whole(ledger: Ledger) -> None:
    rejected(ledger)
    (event,) = ledger.life("node02")
    assert event.judged is not None
    assert (event.kind, event.judged.acceptance, event.judged.nature) == (EventKind.JUDGED, "a1", "recorded")
    host = event.judged.host
    assert (host.verdict, host.failed, host.gpus, host.reasons) == (NodeVerdict.REJECTED, ("gemm",), (GPU,), (WRONG,))
    assert ledger.hosts() == ("node02", "node07")


def test_a_cordoned_host_is_named_until_it_returns(ledger: Ledger) -> None:
    ledger.cordon("node02", "wrong bits", "me@here", when=2000.0)
    ledger.cordon("node02", "and its fan", "you@here", when=2100.0)
    cordoned = ledger.cordoned(["node07", "node02"])
    assert list(cordoned) == ["node02"]
    first, second = cordoned["node02"]
    assert first.text.startswith("node02 is cordoned since 1970-01-01 ") and first.text.endswith(": wrong bits")
    assert second.reason == "and its fan"
    ledger.return_("node02", "replaced", "me@here")
    assert ledger.cordoned(["node02"]) == {}
    kinds = [event.kind for event in ledger.life("node02")]
    assert kinds == [EventKind.CORDONED, EventKind.CORDONED, EventKind.RETURNED]


def test_names_belong_to_their_fleet(ledger: Ledger, tmp_path: Path) -> None:
    ledger.cordon("node02", "wrong bits", "me@here")
    with Ledger(tmp_path / FILE, "other fleet") as other:
        assert other.cordoned(["node02"]) == {} and other.hosts() == () and other.life("node02") == ()


@pytest.mark.parametrize(
    ("began", "steps", "missing"),
    [
        (3000.0, {"health": OK, "gemm": OK}, ""),
        (3000.0, {"gemm": Status.WARNING}, ""),
        (1500.0, {"gemm": OK}, "no acceptance of it since it was cordoned on"),
        (3000.0, {"health": OK}, "gemm failed before and has not passed since"),
        (3000.0, {"gemm": FAILED}, "gemm failed before and has not passed since"),
        (3000.0, {"gemm": Status.UNKNOWN}, "gemm failed before and has not passed since"),
        (3000.0, {"gemm": OK, "memory": FAILED}, "its last acceptance rejected it: memory"),
    ],
)
def test_what_brings_a_host_back(ledger: Ledger, began: float, steps: dict[str, Status], missing: str) -> None:
    rejected(ledger)
    ledger.cordon("node02", "wrong bits", "me@here", when=2000.0)
    assert lacking(ledger.life("node02")).startswith("no acceptance of it since")
    ledger.record(accepted({"node02": steps}, number="a2", began=began))
    told = lacking(ledger.life("node02"))
    assert told.startswith(missing) and bool(told) == bool(missing)


def test_without_a_failed_step_the_host_must_be_accepted(ledger: Ledger) -> None:
    ledger.cordon("node02", "noise", "me@here", when=2000.0)
    ledger.record(accepted({"node02": {"gemm": Status.UNKNOWN}}, number="a2", began=3000.0))
    assert lacking(ledger.life("node02")) == "its last acceptance says: could not tell"
    ledger.record(accepted({"node02": {"gemm": OK}}, number="a3", began=4000.0))
    assert lacking(ledger.life("node02")) == ""
