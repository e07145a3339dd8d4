"""A trial from warm-up to record: what is on disk at every moment, and what becomes of what goes wrong."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from nodectl.cli.app import App
from nodectl.cli.tune.trial import _show_interrupted
from nodectl.errors import UsageError
from nodectl.model.finding import Finding
from nodectl.model.status import Status
from nodectl.model.trial import Trial
from nodectl.model.verdict import Outcome
from nodectl.probes.base import ProbeResult
from nodectl.probes.lost import Loss, Watched
from nodectl.probes.registry import declarations
from nodectl.trials.measuring import TRAINING, Measuring
from nodectl.trials.run import TrialInterrupt, TrialRun, failed
from nodectl.trials.store import find, read
from tests.trials.bench_of_turns import HOSTS, PaperFleet

SPEEDS = {"own": 10.0, "stock": 10.0, "fast": 30.0, "slow": 3.0}
NO_TORCH = Finding("a", TRAINING, Status.UNKNOWN, actual="no torch there", remedy="provision it")


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path / "nodectl" / "trials"


def head(*candidates: str, pairs: int = 5) -> Trial:
    return Trial(
        id="20261121T120000Z-ab12",
        started="2026-11-21T12:00:00+00:00",
        ended="2026-11-21T12:00:00+00:00",
        complete=False,
        reason="",
        nodectl="1",
        inventory=("hosts.yml",),
        limit=None,
        hosts={"a": {"nic": {"mtu": 9000}}, "b": {}},
        baseline="stock",
        candidates=candidates or ("fast",),
        probes=("tcp",),
        pairs=pairs,
        options={"duration_s": 2},
    )


def run_of(fleet: PaperFleet, trial: Trial, **changes: Any) -> TrialRun:
    transport: Any = None
    measuring = Measuring(transport, HOSTS, [replace(declarations()["tcp"], run=fleet.probe)], {})
    given = {"head": trial, "measuring": measuring, "arm": fleet.arm, "note": fleet.said.append}
    return TrialRun(**{**given, "clock": fleet.clock, **changes})


def test_warmed_up_before_it_is_armed_and_put_back_at_the_end() -> None:
    fleet = PaperFleet(SPEEDS)
    found = run_of(fleet, head()).run()
    assert fleet.events[:4] == ["measure own", "arm", "put stock", "measure stock"]
    assert fleet.events[-1] == "put back"
    assert (found.complete, found.reason, failed(found)) == (True, "", 0)
    assert [each.verdict for each in found.verdicts] == [Outcome.BETTER]
    # the warm-up is in no pair
    assert sum(len(each.pairs) for each in found.series) == 5
    assert [each.verdict for each in found.summaries] == [Outcome.BETTER]
    assert {(each["profile"], each["what"]) for each in found.conditions} == {
        ("stock", "tcp a -> b streams 1"),
        ("fast", "tcp a -> b streams 1"),
    }


def test_what_is_kept_is_what_is_shown(state: Path) -> None:
    found = run_of(PaperFleet(SPEEDS), head("fast", "slow")).run()
    path = state / f"{found.id}.json"
    assert path.stat().st_mode & 0o777 == 0o600
    assert read(path) == found == find(found.id) == find("20261121T12")
    document = json.loads(path.read_text())
    assert document["schema"] == "nodectl.tune-trial/1"
    first = document["trials"][0]
    assert {"profile", "probe", "size_bytes", "verdict", "gain_percent", "noise_percent", "interval_percent"} <= {
        *first
    }
    assert [(each["profile"], each["verdict"]) for each in document["trials"]] == [
        ("fast", "better"),
        ("slow", "worse"),
    ]
    assert [each["verdict"] for each in document["summaries"]] == ["better", "worse"]


def test_after_every_turn_all_of_it_is_on_disk_marked_as_not_complete(state: Path) -> None:
    seen: list[tuple[int, bool, int]] = []

    def look(turn: int) -> None:
        if turn > 3:
            (path,) = state.glob("*.json")
            trial = read(path)
            seen.append((turn, trial.complete, sum(len(each.pairs) for each in trial.series)))

    fleet = PaperFleet(SPEEDS)
    fleet.on_turn = look
    run_of(fleet, head()).run()
    # the warm-up is the first measurement, a pair is two more, and a turn is kept after it
    assert seen == [(turn, False, (turn - 2) // 2) for turn in range(4, 12)]


class Crash(BaseException):
    """As a kill in the middle, but one that Python sees."""


@pytest.mark.parametrize(
    ("error", "told"),
    [(KeyboardInterrupt(), "interrupted"), (Crash(), "Crash"), (RuntimeError("a probe broke"), "a probe broke")],
)
def test_broken_off_it_is_put_back_and_kept(error: BaseException, told: str) -> None:
    def stop(turn: int) -> None:
        if turn == 8:
            raise error

    fleet = PaperFleet(SPEEDS)
    fleet.on_turn = stop
    with pytest.raises(type(error)):
        run_of(fleet, head()).run()
    assert fleet.events[-1] == "put back"
    left = find("20261121T120000Z-ab12")
    assert not left.complete
    assert left.reason == f"broken off: {told}"
    assert len(left.series[0].pairs) == 3
    assert left.verdicts[0].verdict is Outcome.UNKNOWN


@pytest.mark.parametrize("put_back", [True, False])
def test_ctrl_c_shows_what_was_measured_and_says_what_became_of_the_settings(
    capsys: pytest.CaptureFixture[str], put_back: bool
) -> None:
    def stop(turn: int) -> None:
        if turn == 8:
            raise KeyboardInterrupt

    fleet = PaperFleet(SPEEDS)
    fleet.on_turn = stop
    with pytest.raises(TrialInterrupt) as end:
        run_of(fleet, head()).run()
    trial = end.value.trial
    assert len(trial.series[0].pairs) == 3
    left = Finding("b", "tune trial", Status.UNKNOWN, "former values", actual="no answer")
    app = App()
    _show_interrupted(app, trial if put_back else replace(trial, findings=(left,)))
    told = capsys.readouterr()
    assert "fast" in told.out and f"nodectl tune show {trial.id}" in told.err
    assert "former values were put back on all hosts" in told.err
    assert ("on all hosts but b" in told.err) is not put_back


def training_without_torch(*_: object) -> ProbeResult:
    return ProbeResult(findings=(NO_TORCH,))


TRAINING_PROBE = replace(declarations()[TRAINING], run=training_without_torch)


@pytest.mark.parametrize(("wished", "status", "exit_status"), [(True, Status.WARNING, 0), (False, Status.UNKNOWN, 3)])
def test_a_probe_that_cannot_measure_here_is_left_out_and_said(wished: bool, status: Status, exit_status: int) -> None:
    fleet = PaperFleet(SPEEDS)
    run = run_of(fleet, head())
    run.measuring.probes = [*run.measuring.probes, TRAINING_PROBE]
    run.measuring.wished = frozenset({TRAINING}) if wished else frozenset()
    found = run.run()
    assert found.probes == ("tcp",)
    (finding,) = found.findings
    assert (finding.status, failed(found)) == (status, exit_status)
    assert "no torch there" in finding.actual


def test_a_budget_cuts_pairs_and_keeps_time_for_the_way_back() -> None:
    fleet = PaperFleet(SPEEDS)
    found = run_of(fleet, head(pairs=50), ends_at=200).run()
    pairs = found.verdicts[0].pairs
    assert 5 <= pairs < 50
    assert [(each.status, each.actual) for each in found.findings] == [
        (Status.WARNING, f"to fit the budget: pairs 50 -> {pairs}")
    ]
    assert fleet.now_s <= 200 - 2 * fleet.put_s
    # fewer pairs than were wished for are a verdict all the same
    assert (found.complete, failed(found)) == (True, 0)


@pytest.mark.parametrize(("turn", "said"), [(1, "lost before anything was changed"), (4, "lost in the middle")])
def test_a_host_that_is_lost_in_a_turn_is_not_asked_again(turn: int, said: str) -> None:
    fleet, inner = PaperFleet(SPEEDS), Mock()
    watched = Watched(inner)
    measured: list[int] = []

    def lose(number: int) -> None:
        measured.append(number)
        if number == turn:
            watched.lost["b"] = Loss("it stopped answering: nothing was heard of it for 9 s")

    fleet.on_turn = lose
    probes = [replace(declarations()["tcp"], run=fleet.probe), replace(declarations()["latency"], run=fleet.probe)]
    found = run_of(fleet, head(), measuring=Measuring(watched, HOSTS, probes, {})).run()
    assert measured == [*range(1, turn + 1)]  # neither by the other probe of the turn nor by a later one
    assert (found.complete, found.reason.startswith(said)) == (False, True)
    assert "b: it stopped answering" in found.reason
    told = [finding for finding in found.findings if finding.subject == "lost"]
    assert [finding.host for finding in told] == ["b"]
    assert ("put back" in fleet.events) is (turn > 1)


def test_joules_that_nothing_tells_decide_nothing_and_nothing_is_changed() -> None:
    fleet = PaperFleet(SPEEDS)
    with pytest.raises(UsageError, match="joule"):
        run_of(fleet, replace(head(), options={"judge_by": "joule"})).run()
    assert fleet.events == ["measure own"]
