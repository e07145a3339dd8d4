"""Options of a workload in a trial: trained once for their loss, left out where it is worse, then timed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from nodectl.articles.programs import Outcome, Runs, WorkloadOptions
from nodectl.model.host import Host
from nodectl.model.measurement import Measurement
from nodectl.model.status import Status
from nodectl.model.trial import Side
from nodectl.probes.base import ProbeResult
from nodectl.probes.endpoints import Endpoint
from nodectl.trials import learning as module
from nodectl.trials.learning import Learning
from nodectl.trials.measuring import Measuring

HOSTS = [Host(name, "192.0.2.1", 22, "root") for name in ("a", "b")]


@dataclass
class Program:
    """In the place of runs on hosts: the loss by the options, or a refusal; every command line is kept."""

    losses: dict[str, float]
    refused: str = ""
    ran: list[tuple[str, ...]] = field(default_factory=list)

    def __call__(self, transport: Any, hosts: Sequence[Host], options: WorkloadOptions, note: Any, plan: Any) -> Runs:
        endpoints: Any = [object.__new__(Endpoint) for _ in hosts]
        (setting,) = plan(endpoints, "cpu")
        assert setting.ranks == (1, 1)
        self.ran.append(setting.arguments)
        if self.refused and self.refused in setting.arguments:
            return Runs(((Outcome(setting, why="16 ranks cannot"),),))
        loss = next((self.losses[word] for word in setting.arguments if word in self.losses), self.losses[""])
        summary = {"held_out_loss": loss, "batch_per_rank": 4, "accumulation": 2}
        row = Measurement("workload", ("a", "b"), 10.0, "tokens/s", conditions={"arguments": "x"})
        return Runs(((Outcome(setting, summary),),), ProbeResult((row,)))


def side(**run_with: str) -> Side:
    return Side(" ".join(run_with), run_with={f"--{name}": value for name, value in run_with.items()})


def never() -> None:
    return None


def learn(monkeypatch: pytest.MonkeyPatch, program: Program, **more: Any) -> tuple[Learning, list[str]]:
    monkeypatch.setattr(module, "run_plan", program)
    said: list[str] = []
    return Learning(**{"program": "llm", "arguments": ("--batch=4",), "steps": 50, "note": said.append, **more}), said


def test_what_learns_worse_is_left_out_and_said(monkeypatch: pytest.MonkeyPatch) -> None:
    program = Program({"": 3.0, "--compress=bf16": 3.02, "--compress=topk": 3.04, "--compress=nan": float("nan")})
    learning, said = learn(monkeypatch, program)
    wanted = [side(compress="bf16"), side(compress="topk"), Side("sysctl"), side(compress="nan"), side(compress="bf16")]
    transport: Any = None
    kept, findings = learning.equal(transport, HOSTS, {}, wanted, never)
    assert [each.label for each in kept] == ["compress", "sysctl", "compress"]
    assert [(finding.status, finding.subject) for finding in findings] == [
        (Status.WARNING, "--compress=topk"),
        (Status.WARNING, "--compress=nan"),
    ]
    assert "held-out loss 3.0400 (+1.33 %)" in findings[0].actual and "3.0000" in findings[0].expected
    assert said[0] == "the baseline: held-out loss 3.0000"
    # each choice once, with as many samples as the baseline
    assert len(program.ran) == 4
    assert "--course-batch=8" not in program.ran[0] and all("--course-batch=8" in words for words in program.ran[1:])
    assert all("--steps=50" in words and "--held-out=256" in words for words in program.ran)


def test_a_turn_is_timed_with_the_sides_options_last(monkeypatch: pytest.MonkeyPatch) -> None:
    program = Program({"": 3.0, "--compress=bf16": 3.0})
    learning, _ = learn(monkeypatch, program)
    transport: Any = None
    chosen = side(compress="bf16")
    learning.equal(transport, HOSTS, {}, [chosen], never)
    measuring = Measuring(transport, HOSTS, [learning.probe], {})
    (row,) = measuring(chosen).measurements
    assert program.ran[-1][-1] == "--compress=bf16" and "--steps=22" in program.ran[-1]
    assert row.conditions["held_out_loss"] == 3.0
    (row,) = measuring(Side("own")).measurements
    assert "--compress=bf16" not in program.ran[-1]


def test_half_of_the_budget_is_for_the_losses(monkeypatch: pytest.MonkeyPatch) -> None:
    program = Program({"": 3.0})
    learning, _ = learn(monkeypatch, program)
    left = iter([100.0, 80.0, 49.0, 40.0])
    transport: Any = None
    wanted = [side(compress="bf16"), side(compress="fp16"), side(compress="topk")]
    kept, (finding,) = learning.equal(transport, HOSTS, {}, wanted, lambda: next(left))
    assert len(kept) == 1 and len(program.ran) == 2
    assert finding.status is Status.WARNING and finding.actual.startswith("2 choices of options: no time")
