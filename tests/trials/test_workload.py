"""A workload's program as a probe of a trial: its command line, and what it says when it refuses its options."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from nodectl.articles import programs
from nodectl.articles.programs import Outcome, Runs, WorkloadOptions
from nodectl.model.host import Host
from nodectl.model.measurement import Measurement
from nodectl.model.status import Status
from nodectl.probes.base import ProbeResult
from nodectl.probes.endpoints import Endpoint
from nodectl.trials.measuring import Measuring, workload_probe

HOSTS = [Host(name, "192.0.2.1", 22, "root") for name in ("a", "b")]


def turn(monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], result: ProbeResult) -> tuple[Any, ProbeResult]:
    """The setting that a turn runs, and what it comes to."""
    settings: list[Any] = []

    def run_plan(_: Any, hosts: Sequence[Host], options: WorkloadOptions, note: Any, plan: Any) -> Runs:
        assert (options.program, options.repetitions) == ("llm", 1)
        endpoints: Any = [object.__new__(Endpoint) for _ in hosts]
        settings.extend(plan(endpoints, "cpu"))
        return Runs(((Outcome(settings[0], why="16 ranks cannot"),),), result)

    monkeypatch.setattr(programs, "run_plan", run_plan)
    transport: Any = None
    measured = Measuring(transport, HOSTS, [workload_probe("llm", arguments)], {"repetitions": None})()
    return settings[0], measured


def test_a_turn_is_a_short_run_over_all_hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    row = Measurement("workload", ("a", "b"), 10.0, "tokens/s")
    setting, measured = turn(monkeypatch, ("--batch=4", "--steps=900"), ProbeResult((row,)))
    assert measured.measurements == (row,) and setting.ranks == (1, 1)
    assert setting.arguments[:2] == ("--batch=4", "--steps=900")
    # the last of two counts
    assert [word for word in setting.arguments if word.startswith("--steps=")][-1] == "--steps=22"
    usual, _ = turn(monkeypatch, (), ProbeResult((row,)))
    assert usual.arguments[0].startswith("--")


def test_options_that_the_program_refuses_are_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    _, measured = turn(monkeypatch, ("--batch=0",), ProbeResult())
    (finding,) = measured.findings
    assert (finding.status, finding.subject, finding.actual) == (Status.FAILED, "--batch=0", "16 ranks cannot")
    lost = replace(finding, actual="no torch")
    assert turn(monkeypatch, (), ProbeResult(findings=(lost,)))[1].findings == (lost,)
