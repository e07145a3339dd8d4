"""The shipped workload programs over chosen hosts: one run of each setting, and the summary that it ends with."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Any

from nodectl.articles.gangs import device_of, failure_of, rank_members, with_torch
from nodectl.common.counting import counted
from nodectl.common.units import time_text
from nodectl.errors import UsageError
from nodectl.model.finding import Finding
from nodectl.model.host import Host
from nodectl.model.measurement import Measurement, MeasurementKind, Unit
from nodectl.model.status import Status
from nodectl.probes.base import Amount, Note, Probe, ProbeOptions, ProbeResult, host_finding, spread
from nodectl.probes.endpoints import Endpoint, find_endpoints, on_one_machine
from nodectl.probes.gang import Member, culprits, play
from nodectl.transport.base import Transport

NAME = "workload"
_MODULE = "articles.workload"
# a run that is longer is given up: each table is to take minutes
RUN_S = 600.0
# a run is as long as its steps take, importing torch among them; of fewer there is no verdict
_USUAL = Amount(repetitions=5, duration_s=20.0)
# before a program's first step that counts: importing torch, meeting, ten steps of warm-up
_START_S, _WARMUP_STEPS = 5.0, 10


@dataclass(frozen=True, slots=True)
class Setting:
    """One run: so many ranks on each of the first hosts, and the program's options.

    `devices` are those that take part, which are more than the ranks where one process has several. `label` is its
    row's name; `refused` says why it is not run. `steps` go before those of the arguments, if they are not 0.
    """

    label: str
    ranks: tuple[int, ...]
    arguments: tuple[str, ...]
    devices: int
    refused: str = ""
    steps: int = 0


@dataclass(frozen=True, slots=True)
class Outcome:
    """Hold what a setting came to: its summary, or what is wrong."""

    setting: Setting
    summary: Mapping[str, Any] | None = None
    why: str = ""
    findings: tuple[Finding, ...] = field(default=())


def run_setting(
    transport: Transport, ready: Sequence[Endpoint], program: str, setting: Setting, device: str, options: ProbeOptions
) -> Outcome:
    """One run to its end; a program that refuses its options is no finding, but has said why."""
    if setting.refused:
        return Outcome(setting, why=setting.refused)
    played = play(transport, _members(ready, program, setting, device, options), RUN_S)
    summaries = [event["summary"] for player in played for event in player.events.of("summary")]
    if summaries and all(player.ok for player in played):
        return Outcome(setting, summaries[-1])
    refusals = [event["text"] for player in played for event in player.events.of("error") if event.get("refused")]
    if refusals:
        return Outcome(setting, why=str(refusals[0]))
    findings = tuple(failure_of(NAME, culprit) for culprit in culprits(played))
    if not findings:
        host = played[0].member.host.name
        findings = (host_finding(NAME, host, Status.UNKNOWN, "the program ended without a summary"),)
    return Outcome(setting, why=findings[0].actual, findings=findings)


def _members(
    ready: Sequence[Endpoint], program: str, setting: Setting, device: str, options: ProbeOptions
) -> list[Member]:
    steps = [f"--steps={setting.steps}", f"--log-every={setting.steps}"] if setting.steps else []
    given = {"program": program, "arguments": json.dumps([f"--device={device}", *setting.arguments, *steps])}
    return rank_members(ready, setting.ranks, _MODULE, device, options, given, RUN_S)


def run_all(
    transport: Transport,
    ready: Sequence[Endpoint],
    settings: Sequence[Setting],
    device: str,
    options: WorkloadOptions,
    note: Note,
) -> list[list[Outcome]]:
    """Return each setting's outcomes, one a repetition; settings take turns, so that what drifts touches all alike.

    A setting that came to nothing once is not run again. With `row_s` a first run of each says how many steps its
    others need.
    """
    outcomes: list[list[Outcome]] = [[] for _ in settings]
    rounds, program = options.repetitions or _USUAL.repetitions, options.program

    def run(setting: Setting, which: str) -> Outcome:
        # a free port is one that was free before the run before
        again, _ = find_endpoints(transport, [endpoint.host for endpoint in ready[:1]], NAME, options)
        here = [*again, *ready[1:]] if again else ready
        outcome = run_setting(transport, here, program, setting, device, options)
        if not setting.refused:
            note(f"{program}, {setting.label}{which}: {_figure(outcome) or outcome.why}")
        return outcome

    if options.row_s:
        runnable = sum(not setting.refused for setting in settings)
        least_s = runnable * (options.row_s + (rounds + 1) * _START_S)
        note(f"{program}: {rounds} runs of each, {options.row_s:g} s of steps: {time_text(least_s)} or more")
        first = [run(setting, ", to see how long a step is") for setting in settings]
        outcomes = [[outcome] if outcome.summary is None else [] for outcome in first]
        settings = [replace(outcome.setting, steps=_steps(outcome, options.row_s / rounds)) for outcome in first]
    for number in range(rounds):
        for setting, attempts in zip(settings, outcomes, strict=True):
            if not attempts or attempts[-1].summary is not None:
                attempts.append(run(setting, f", {number + 1} of {rounds}" if rounds > 1 else ""))
    return outcomes


def _steps(outcome: Outcome, seconds: float) -> int:
    """Return how many steps last so long, those of the warm-up beside them; 0 if nobody knows."""
    step_ms = (outcome.summary or {}).get("median_step_ms")
    return _WARMUP_STEPS + math.ceil(1e3 * seconds / step_ms) if isinstance(step_ms, int | float) and step_ms else 0


def _figure(outcome: Outcome) -> str:
    summary = outcome.summary or {}
    rate = summary.get("samples_per_s")
    return f"{rate:g} samples/s on {counted(summary.get('world_size'), 'rank')}" if rate else ""


@dataclass(frozen=True, slots=True)
class WorkloadOptions(ProbeOptions):
    """Hold which program; its settings come from a plan, by default one run of it over all hosts with these arguments.

    The steps that count of all runs of a setting together last `row_s` at least, if that is not 0.
    """

    program: str = "transformer"
    arguments: tuple[str, ...] = ()
    row_s: float = 0.0


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
    """Yield what the repetitions of one setting came to, for the history: the rate, and the energy where it is told."""
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
    """One run over all hosts, with a rank a GPU, or one a host."""

    def everywhere(ready: Sequence[Endpoint], device: str) -> list[Setting]:
        ranks = tuple(endpoint.gpus if device == "cuda" else 1 for endpoint in ready)
        return [Setting("all", ranks, options.arguments, sum(ranks))]

    return run_plan(transport, hosts, options, note, everywhere).result


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
