"""A shipped workload's program as a probe of a trial: a short run over all hosts, timed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from nodectl.articles.programs import NAME, PROBE, Setting, WorkloadOptions, run_plan
from nodectl.articles.scaling import usual_arguments
from nodectl.model.finding import Finding
from nodectl.model.host import Host
from nodectl.model.status import Status
from nodectl.probes.base import Note, Probe, ProbeResult
from nodectl.probes.endpoints import Endpoint
from nodectl.transport.base import Transport

# ten of them are the clock's warm-up
_STEPS = 22


def workload_probe(program: str, arguments: tuple[str, ...]) -> Probe[WorkloadOptions]:
    """Return a probe that trains this program with these options, else with its usual ones."""
    return replace(PROBE, run=_run, in_a_trial=WorkloadOptions(repetitions=1, program=program, arguments=arguments))


def _run(transport: Transport, hosts: Sequence[Host], options: WorkloadOptions, note: Note) -> ProbeResult:
    def everywhere(ready: Sequence[Endpoint], device: str) -> list[Setting]:
        ranks = tuple(endpoint.gpus if device == "cuda" else 1 for endpoint in ready)
        arguments = options.arguments or usual_arguments(options.program, device)
        # the last of two counts
        argv = (*arguments, "--no-resume", f"--steps={_STEPS}", "--held-out=0", f"--log-every={_STEPS}")
        return [Setting("all", ranks, argv, sum(ranks))]

    runs = run_plan(transport, hosts, options, note, everywhere)
    if runs.result.measurements or runs.result.findings:
        return runs.result
    # the program refused its options
    why = runs.outcomes[0][-1].why
    return ProbeResult(findings=(Finding("", NAME, Status.FAILED, " ".join(options.arguments), actual=why),))
