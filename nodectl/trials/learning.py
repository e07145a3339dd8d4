"""The workload of a trial: which options learn as well as the baseline, and how fast a side trains."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from nodectl.articles.programs import NAME, PROBE, Outcome, Setting, WorkloadOptions, run_plan
from nodectl.articles.scaling import usual_arguments
from nodectl.common.counting import counted
from nodectl.model.finding import Finding
from nodectl.model.host import Host
from nodectl.model.status import Status
from nodectl.model.trial import Side
from nodectl.probes.base import Note, Probe, ProbeResult
from nodectl.probes.endpoints import Endpoint
from nodectl.transport.base import Transport
from nodectl.trials.measuring import in_a_trial, silent
from nodectl.trials.space import flag_words

# a held-out loss that is higher by more is another training
_WORSE = 0.01
# ten of them are the clock's warm-up
_TIMED_STEPS = 22
# where nobody says how many
_HELD_OUT = 256
# the rest of the budget is for the turns
_SHARE = 0.5

Chosen = tuple[str, ...]


@dataclass(slots=True)
class Learning:
    """A program of nodectl's workloads over all hosts, with the operator's `arguments` and those that a side chooses.

    As a probe's `run` it measures speed. `losses` has the held-out loss of each choice after the samples of `steps`
    steps of the baseline; nothing where `steps` is 0.
    """

    program: str
    arguments: Sequence[str]
    steps: int
    note: Note
    losses: dict[Chosen, float] = field(default_factory=dict)

    @property
    def probe(self) -> Probe[WorkloadOptions]:
        """Return the workload as a probe of one trial."""
        return replace(PROBE, run=self.time, in_a_trial=WorkloadOptions(repetitions=1, program=self.program))

    @property
    def record(self) -> dict[str, object]:
        """Return program, arguments and steps as a trial's options keep them."""
        return {"workload": self.program, "arguments": list(self.arguments), "loss_steps": self.steps}

    def time(self, transport: Transport, hosts: Sequence[Host], options: WorkloadOptions, _: Note) -> ProbeResult:
        """Measure a short run; its conditions have the loss."""
        course = (f"--steps={_TIMED_STEPS}", "--held-out=0", f"--log-every={_TIMED_STEPS}")
        outcome, result = self._run(transport, hosts, options, course)
        if outcome is None or outcome.summary is None:
            return result if result.findings else ProbeResult(findings=(_finding(options.arguments, outcome),))
        loss = self.losses.get(options.arguments)
        rows = [replace(row, conditions={**row.conditions, "held_out_loss": loss}) for row in result.measurements]
        return ProbeResult(tuple(rows), result.findings)

    def equal(
        self,
        transport: Transport,
        hosts: Sequence[Host],
        asked: Mapping[str, object],
        sides: Sequence[Side],
        left_s: Callable[[], float | None],
    ) -> tuple[list[Side], list[Finding]]:
        """Return the sides whose held-out loss is at most 1 % above the baseline's, and why the others are left out.

        Each choice is trained once with the baseline's samples, before anything is changed on a host: in half of the
        time that is left, in the order of the sides. All are left out where the baseline itself cannot be trained.
        """
        if not self.steps or not any(flag_words(side.run_with) for side in sides):
            return list(sides), []
        options = in_a_trial(self.probe, asked)
        whole_s, refused = left_s(), dict[Chosen, Finding]()
        batch = self._learn(transport, hosts, replace(options, arguments=()), 0, refused)
        late = 0
        for chosen in dict.fromkeys(flag_words(side.run_with) for side in sides):
            if () in refused:
                return [], list(refused.values())
            if chosen in self.losses:
                continue
            rest_s = left_s()
            if whole_s is not None and rest_s is not None and rest_s < whole_s * (1 - _SHARE):
                late += 1
                continue
            self._learn(transport, hosts, replace(options, arguments=chosen), batch, refused)
        findings = list(refused.values())
        if late:
            actual = f"{counted(late, 'choice')} of options: no time to train with them once, in half of the budget"
            findings.append(Finding("", NAME, Status.WARNING, "not tried", actual=actual))
        return [side for side in sides if flag_words(side.run_with) in self.losses], findings

    def _learn(
        self,
        transport: Transport,
        hosts: Sequence[Host],
        options: WorkloadOptions,
        batch: int,
        refused: dict[Chosen, Finding],
    ) -> int:
        """Train once and keep the loss, or why not; samples of a rank and step."""
        chosen = options.arguments
        course = [f"--steps={self.steps}", f"--log-every={self.steps}"]
        course += [f"--course-batch={batch}"] if batch else []
        outcome, result = self._run(transport, hosts, options, course)
        if outcome is None or outcome.summary is None:
            refused[chosen] = result.findings[0] if result.findings else _finding(chosen, outcome)
            self.note(f"{_named(chosen)}: {refused[chosen].actual}")
            return batch
        loss = outcome.summary.get("held_out_loss")
        if not isinstance(loss, int | float):
            loss = float("nan")
        first = self.losses.get((), loss)
        result_line = f"held-out loss {loss:.4f}" + (f" ({100 * (loss / first - 1):+.2f} %)" if chosen else "")
        self.note(f"{_named(chosen)}: {result_line}")
        # what is no number is no loss either
        if loss <= first * (1 + _WORSE):
            self.losses[chosen] = float(loss)
        else:
            refused[chosen] = Finding(
                "",
                NAME,
                Status.WARNING,
                _named(chosen),
                expected=f"at most {100 * _WORSE:g} % above {first:.4f}, the baseline's",
                actual=f"worse: {result_line} after the samples of {self.steps} steps; its speed was not measured",
            )
        return int(outcome.summary["batch_per_rank"]) * int(outcome.summary["accumulation"])

    def _run(
        self, transport: Transport, hosts: Sequence[Host], options: WorkloadOptions, course: Sequence[str]
    ) -> tuple[Outcome | None, ProbeResult]:
        def everywhere(ready: Sequence[Endpoint], device: str) -> list[Setting]:
            ranks = tuple(endpoint.gpus if device == "cuda" else 1 for endpoint in ready)
            arguments = self.arguments or usual_arguments(options.program, device)
            # the last of two counts
            argv = (f"--held-out={_HELD_OUT}", *arguments, "--no-resume", *course, *options.arguments)
            return [Setting("all", ranks, argv, sum(ranks))]

        runs = run_plan(transport, hosts, replace(options, repetitions=1), silent, everywhere)
        return (runs.outcomes[0][-1] if runs.outcomes else None), runs.result


def _finding(chosen: Chosen, outcome: Outcome | None) -> Finding:
    """Return a finding with the program's own reason why it does not run so."""
    why = outcome.why if outcome else "not run"
    return Finding("", NAME, Status.FAILED, _named(chosen), actual=why)


def _named(chosen: Chosen) -> str:
    return " ".join(chosen) or "the baseline"
