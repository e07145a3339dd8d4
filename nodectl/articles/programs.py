"""The shipped workload programs over chosen hosts: one run of each setting, and the summary that it ends with."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from nodectl.articles.gangs import device_of, rank_members, with_torch
from nodectl.common.counting import counted
from nodectl.errors import UsageError
from nodectl.model.finding import Finding
from nodectl.model.host import Host
from nodectl.model.measurement import Measurement, MeasurementKind, Unit
from nodectl.model.status import Status
from nodectl.probes.base import Amount, Note, Probe, ProbeOptions, ProbeResult, host_finding, spread
from nodectl.probes.endpoints import Endpoint, find_endpoints, on_one_machine
from nodectl.probes.gang import culprits, failure_of, play
from nodectl.transport.base import Transport

NAME = "workload"
_MODULE = "articles.workload"
# a run that is longer is given up: each table is to take minutes
RUN_S = 600.0
# a run is as long as its steps take, importing torch among them; of fewer there is no verdict
_USUAL = Amount(repetitions=5, duration_s=20.0)
# before a program's first step that counts
_START_S = 5.0
# of a turn of a trial: ten of them are the clock's warm-up
_TRIAL_STEPS = 22
_PRESETS = {"resnet50": "article-3", "llm": "article-4", "transformer": "article-0"}
# what two processors do in seconds; a GPU gets the article's preset
_SMALL = {
    "resnet50": ("--layers=18", "--batch=8"),
    "llm": ("--layers=2", "--hidden=64", "--intermediate=172", "--heads=4", "--seq=64", "--batch=4"),
    "transformer": ("--layers=2", "--d-model=128", "--heads=4", "--seq=32", "--batch=8"),
}


def usual_arguments(program: str, device: str) -> tuple[str, ...]:
    """Return what a program runs with if nobody chose: the article's preset, or what processors do in seconds."""
    return _SMALL[program] if device == "cpu" else (f"--preset={_PRESETS[program]}",)


def ranks_of(ready: Sequence[Endpoint], device: str) -> tuple[int, ...]:
    """Return how many ranks each host has: one a GPU, one without GPUs."""
    return tuple(endpoint.gpus if device == "cuda" else 1 for endpoint in ready)


@dataclass(frozen=True, slots=True)
class Setting:
    """One run: so many ranks on each of the first hosts, and the program's options.

    `devices` are those that take part, which are more than the ranks where one process has several. `label` is its
    row's name; `refused` says why it is not run.
    """

    label: str
    ranks: tuple[int, ...]
    arguments: tuple[str, ...]
    devices: int
    refused: str = ""


@dataclass(frozen=True, slots=True)
class Outcome:
    """Hold what a setting came to: its summary, or what is wrong."""

    setting: Setting
    summary: Mapping[str, Any] | None = None
    why: str = ""
    findings: tuple[Finding, ...] = field(default=())


def run_setting(
    transport: Transport,
    ready: Sequence[Endpoint],
    program: str,
    setting: Setting,
    device: str,
    options: ProbeOptions,
    name: str = NAME,
) -> Outcome:
    """One run to its end; a program that refuses its options is no finding, but has said why."""
    if setting.refused:
        return Outcome(setting, why=setting.refused)
    given = {"program": program, "arguments": json.dumps([f"--device={device}", *setting.arguments])}
    played = play(transport, rank_members(ready, setting.ranks, _MODULE, device, options, given, RUN_S), RUN_S)
    summaries = [event["summary"] for player in played for event in player.events.of("summary")]
    if summaries and all(player.ok for player in played):
        return Outcome(setting, summaries[-1])
    refusals = [event["text"] for player in played for event in player.events.of("error") if event.get("refused")]
    if refusals:
        return Outcome(setting, why=str(refusals[0]))
    findings = tuple(failure_of(name, culprit) for culprit in culprits(played))
    if not findings:
        host = played[0].member.host.name
        findings = (host_finding(name, host, Status.UNKNOWN, "the program ended without a summary"),)
    return Outcome(setting, why=findings[0].actual, findings=findings)


def run_all(
    transport: Transport,
    ready: Sequence[Endpoint],
    settings: Sequence[Setting],
    device: str,
    options: WorkloadOptions,
    note: Note,
) -> list[list[Outcome]]:
    """Return each setting's outcomes, one a repetition; settings take turns, so that what drifts touches all alike.

    A setting that came to nothing once is not run again.
    """
    outcomes: list[list[Outcome]] = [[] for _ in settings]
    rounds, program = options.repetitions or _USUAL.repetitions, options.program
    for number in range(rounds):
        for setting, attempts in zip(settings, outcomes, strict=True):
            if attempts and attempts[-1].summary is None:
                continue
            # a free port is one that was free before the run before
            again, _ = find_endpoints(transport, [endpoint.host for endpoint in ready[:1]], NAME, options)
            here = [*again, *ready[1:]] if again else ready
            outcome = run_setting(transport, here, program, setting, device, options)
            attempts.append(outcome)
            if not setting.refused:
                which = f", {number + 1} of {rounds}" if rounds > 1 else ""
                note(f"{program}, {setting.label}{which}: {_figure(outcome) or outcome.why}")
    return outcomes


def _figure(outcome: Outcome) -> str:
    summary = outcome.summary or {}
    rate = summary.get("samples_per_s")
    return f"{rate:g} samples/s on {counted(summary.get('world_size'), 'rank')}" if rate else ""


@dataclass(frozen=True, slots=True)
class WorkloadOptions(ProbeOptions):
    """Hold which program, and the arguments of its run where no plan says otherwise."""

    program: str = "transformer"
    arguments: tuple[str, ...] = ()


# what is run, given the hosts that take part and the device (`cuda` or `cpu`)
Plan = Callable[[Sequence[Endpoint], str], list[Setting]]


@dataclass(frozen=True, slots=True)
class Runs:
    """The outcomes of each setting, and what the history and the operator are told."""

    outcomes: tuple[tuple[Outcome, ...], ...] = ()
    result: ProbeResult = field(default_factory=ProbeResult)
    device: str = ""
    on_one_machine: bool = False


def run_plan(transport: Transport, hosts: Sequence[Host], options: WorkloadOptions, note: Note, plan: Plan) -> Runs:
    """Every setting of the plan; nothing if one host cannot take part, for the others would be another fleet.

    UsageError if the plan has nothing that can be run.
    """
    ready, findings = with_torch(transport, hosts, NAME, options)
    if not ready:
        return Runs(result=ProbeResult(findings=tuple(findings)))
    device = device_of(ready)
    settings = plan(ready, device)
    if all(setting.refused for setting in settings):
        reasons = "; ".join(f"{setting.label}: {setting.refused}" for setting in settings)
        raise UsageError(f"nothing can be run: {reasons}", "take other devices")
    note(f"{options.program}: {counted(len(settings), 'setting')} on {counted(len(ready), 'host')}, {device}")
    outcomes = run_all(transport, ready, settings, device, options, note)
    measurements = tuple(
        measurement
        for attempts in outcomes
        if attempts[-1].summary is not None
        for measurement in _measurements(attempts, hosts)
    )
    wrong = tuple(finding for attempts in outcomes for outcome in attempts for finding in outcome.findings)
    return Runs(tuple(map(tuple, outcomes)), ProbeResult(measurements, wrong), device, on_one_machine(ready))


def rate_of(summary: Mapping[str, Any]) -> tuple[float, str]:
    """Return what all ranks did in a second: tokens where the program counts them, else samples."""
    for name in ("tokens", "samples"):
        if isinstance(value := summary.get(f"{name}_per_s"), int | float):
            return float(value), f"{name}/s"
    return 0.0, "samples/s"


def energy_of(summary: Mapping[str, Any]) -> tuple[float, str]:
    """Return the joules of all GPUs for a token where the program counts them, else for a sample; 0 where not told."""
    unit = rate_of(summary)[1].removesuffix("s/s")
    value = summary.get(f"joule_per_{unit}")
    return (float(value) if isinstance(value, int | float) else 0.0), f"J/{unit}"


def _measurements(outcomes: Sequence[Outcome], hosts: Sequence[Host]) -> Iterator[Measurement]:
    summaries = [outcome.summary for outcome in outcomes if outcome.summary is not None]
    setting = outcomes[0].setting
    names = ("workload", "preset", "data", "params", "parallel", "precision", "batch_per_rank", "accumulation",
             "world_size", "device", "device_name", "backend")  # fmt: skip
    given = {name: summaries[0].get(name) for name in names}
    run_conditions = {"arguments": " ".join(setting.arguments), "devices": setting.devices}
    taking = tuple(host.name for host in hosts[: len(setting.ranks)])
    for figure in (rate_of, energy_of):
        values = [figure(summary)[0] for summary in summaries]
        if figure is rate_of or all(values):
            value, conditions = median(values), {**given, **run_conditions, "values": values}
            unit = figure(summaries[0])[1]
            yield Measurement(NAME, taking, value, unit, "", None, spread(values, value), conditions)


def run_workload(transport: Transport, hosts: Sequence[Host], options: WorkloadOptions, note: Note) -> ProbeResult:
    """One short run over all hosts."""

    def everywhere(ready: Sequence[Endpoint], device: str) -> list[Setting]:
        ranks = ranks_of(ready, device)
        arguments = options.arguments or usual_arguments(options.program, device)
        # the last of two counts
        short = ("--no-resume", f"--steps={_TRIAL_STEPS}", "--held-out=0", f"--log-every={_TRIAL_STEPS}")
        return [Setting("all", ranks, (*arguments, *short), sum(ranks))]

    runs = run_plan(transport, hosts, options, note, everywhere)
    if runs.result.measurements or runs.result.findings:
        return runs.result
    # the program refused its options
    why = runs.outcomes[0][-1].why
    return ProbeResult(findings=(Finding("", NAME, Status.FAILED, " ".join(options.arguments), actual=why),))


PROBE = Probe(
    name=NAME,
    summary="A short run of a shipped workload's program.",
    run=run_workload,
    options=WorkloadOptions,
    results=MeasurementKind(
        units=(
            *(Unit("samples/s"), Unit("tokens/s")),
            *(Unit("J/sample", lower_is_better=True), Unit("J/token", lower_is_better=True)),
        ),
        identity=(
            *("workload", "preset", "devices", "parallel", "precision"),
            *("batch_per_rank", "accumulation", "arguments", "device_name"),
        ),
        shown="{workload}, {devices} devices, {parallel}, batch {batch_per_rank} x {accumulation}",
    ),
    usual=_USUAL,
    least=Amount(repetitions=1, duration_s=_START_S),
    cost_s=lambda amount: amount.repetitions * amount.duration_s,
    between_hosts=True,
    has_ranks=True,
    listed=False,
)
