"""The course of an acceptance: who fails a step leaves, and what is done is kept."""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from nodectl.ledger.accept import course as module
from nodectl.ledger.accept.course import Course, Surroundings
from nodectl.ledger.accept.steps import Level, make_plan
from nodectl.model.acceptance import Acceptance, NodeVerdict, StepState
from nodectl.model.finding import Finding
from nodectl.model.host import Host
from nodectl.model.measurement import Measurement
from nodectl.model.result import CommandResult, Outcome
from nodectl.model.status import Status
from nodectl.probes.base import ProbeResult
from nodectl.probes.lost import Loss, Watched
from tests.ledger.accept.made import NAMES, acceptance, found, means


class _Nobody:
    """A transport for what asks no host."""

    def run(self, host: Host, argv: Sequence[str], **_: Any) -> CommandResult:
        return CommandResult(host.name, tuple(argv), Outcome.RAN, 0, "", "", 0.0)

    def close(self) -> None: ...


Answer = Callable[[str, Sequence[str], Any], ProbeResult]


class _Fleet:
    """Eight hosts of which `answer` tells what each step sees; what was asked of whom is kept."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, answer: Answer, bad: Sequence[str] = ()) -> None:
        self.asked: list[tuple[str, tuple[str, ...]]] = []
        self.ends: list[float | None] = []
        self.kept: list[Acceptance] = []
        self.watched = Watched(_Nobody())
        self.bad = bad
        self.answer = answer

        def run_probes(_: Any, hosts: Sequence[Host], wanted: Any, ends_at: float | None, *__: Any) -> ProbeResult:
            names = [host.name for host in hosts]
            probe, options = wanted[0]
            self.asked.append((probe.name, tuple(names)))
            self.ends.append(ends_at)
            return self.answer(probe.name, names, options)

        monkeypatch.setattr(module, "run_probes", run_probes)

    def look(self, hosts: Sequence[Host]) -> Sequence[Finding]:
        names = [host.name for host in hosts]
        self.asked.append(("health", tuple(names)))
        return [Finding(name, "gpus", Status.FAILED if name in self.bad else Status.OK) for name in names]

    def run(self, *, level: Level = Level.QUICK, limited: bool = False) -> Acceptance:
        known = means()
        begun = replace(acceptance(*make_plan(known, level, 600.0 if limited else None, {})), level=str(level))
        hosts = {name: Host(name, name) for name in NAMES}
        around = Surroundings(hosts, known, self.watched, self.look, lambda _: None, 8)
        return Course(around, begun, self.kept.append, limited=limited).run()


def _well(probe: str, names: Sequence[str], options: Any) -> ProbeResult:
    return ProbeResult((Measurement(probe, (names[0],), 1.0, "GB/s"),))


def _verdicts(told: Acceptance) -> dict[str, NodeVerdict]:
    return {host.host: host.verdict for host in told.hosts}


def test_a_healthy_fleet_is_accepted_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = _Fleet(monkeypatch, _well)
    told = fleet.run()
    assert {*_verdicts(told).values()} == {NodeVerdict.ACCEPTED}
    assert [name for name, _ in fleet.asked] == ["health", "memory", "gemm", "tcp", "nccl", "training"]
    assert told.ended is not None
    assert {step.state for step in told.steps} == {StepState.DONE, StepState.LEFT_OUT}
    assert {taken.step for taken in told.taken} == {"memory", "gemm", "tcp", "nccl", "training"}


def test_who_fails_a_step_is_not_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def slow(probe: str, names: Sequence[str], options: Any) -> ProbeResult:
        bad = [found("node05", Status.FAILED)] if probe == "tcp" and "node05" in names else []
        return ProbeResult(findings=tuple(bad))

    fleet = _Fleet(monkeypatch, slow, bad=["node02"])
    told = fleet.run()
    rejected = {name for name, verdict in _verdicts(told).items() if verdict is NodeVerdict.REJECTED}
    assert rejected == {"node02", "node05"}
    assert {host.host: host.left_after for host in told.hosts if host.left_after} == {
        "node02": "health",
        "node05": "tcp",
    }
    by_step = dict(fleet.asked)
    assert "node02" not in by_step["memory"]
    assert by_step["nccl"] == tuple(name for name in NAMES if name not in rejected)


def test_a_lost_host_cannot_be_told_and_the_rest_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def cut(probe: str, names: Sequence[str], options: Any) -> ProbeResult:
        if probe != "gemm":
            again = [found("node04", Status.UNKNOWN, subject="lost")] if fleet.watched.lost else []
            return ProbeResult(_well(probe, names, options).measurements, tuple(again))
        fleet.watched.lost["node04"] = Loss("it stopped answering")
        assert "node04" in names
        return ProbeResult(findings=(found("node04", Status.UNKNOWN, subject="lost"),))

    fleet = _Fleet(monkeypatch, cut)
    told = fleet.run()
    assert [name for name, verdict in _verdicts(told).items() if verdict is not NodeVerdict.ACCEPTED] == ["node04"]
    assert _verdicts(told)["node04"] is NodeVerdict.UNTOLD
    assert "node04" not in dict(fleet.asked)["tcp"]
    # said once, though each run of probes says it anew
    assert [seen.step for seen in told.seen if seen.finding.subject == "lost"] == ["gemm"]


def test_ended_early_what_was_done_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(probe: str, names: Sequence[str], options: Any) -> ProbeResult:
        if probe == "tcp":
            raise KeyboardInterrupt
        return _well(probe, names, options)

    fleet = _Fleet(monkeypatch, interrupted, bad=["node02"])
    with pytest.raises(KeyboardInterrupt):
        fleet.run()
    last = fleet.kept[-1]
    assert last.ended is None and [step.name for step in last.steps if step.state is StepState.DONE][-1] == "gemm"
    assert _verdicts(last)["node02"] is NodeVerdict.REJECTED


@pytest.mark.parametrize("limited", [False, True])
def test_a_burn_in_is_under_load_as_long_as_planned(monkeypatch: pytest.MonkeyPatch, limited: bool) -> None:
    given: list[float] = []

    def burnt(
        look: Any, loads: Sequence[Callable[[float], ProbeResult]], hosts: Sequence[Host], ends_at: float, note: Any
    ) -> ProbeResult:
        given.append(ends_at - time.monotonic())
        return ProbeResult(findings=(found("node03", Status.FAILED),)) + loads[0](ends_at)

    monkeypatch.setattr(module, "burn", burnt)
    fleet = _Fleet(monkeypatch, _well)
    told = fleet.run(level=Level.BURN_IN, limited=limited)
    planned = next(step.planned_s for step in told.steps if step.name == "burn-in")
    assert given[0] == pytest.approx(planned, rel=0.2) or limited
    assert given[0] > 0.9 * planned
    assert _verdicts(told)["node03"] is NodeVerdict.REJECTED
    assert dict(fleet.asked)["health"] == tuple(name for name in NAMES if name != "node03")
