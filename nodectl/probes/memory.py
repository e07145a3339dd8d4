"""The memory probe: copy and triad over all cores and each NUMA node, and the fleet held against itself."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from nodectl.common.units import MIB
from nodectl.facts.versions import venv_of
from nodectl.model.finding import Finding
from nodectl.model.host import Host
from nodectl.model.measurement import Measurement, MeasurementKind, Unit
from nodectl.model.result import CommandResult
from nodectl.model.status import Status
from nodectl.probes.base import Amount, Note, Probe, ProbeOptions, ProbeResult, host_finding, spread
from nodectl.probes.budget import fit, given_up, has_time, marked, said
from nodectl.probes.endpoints import failure
from nodectl.probes.events import Event, Events
from nodectl.probes.outliers import Slow, best_run, better, hardware_names, slow, usual_run
from nodectl.probes.schedule import by_machine, turns
from nodectl.transport.base import Transport
from nodectl.transport.fanout import fan_out
from nodectl.transport.payload import run_payload

_NAME = "memory"
# of one repetition: several periods of a control group's processor quota
_USUAL = Amount(repetitions=3, duration_s=0.2)
_BEST_OF = 2
_LOOK_S, _MEASURE_S = 90.0, 600.0
# hosts are held against each other by what lasts: a quota on the processor shows in no single pass
_SUSTAINED = "sustained_gb_s"
# the best that all hosts have is used on all: figures of different means say nothing of each other
_METHODS = ("torch", "cc", "libc")
_REMEDY = "look at its memory modules and the processor's frequencies (`nodectl health`), and at who else runs there"


@dataclass(frozen=True, slots=True)
class _Ready:
    """A host that answers: by what means it could be measured, and on which machine it runs."""

    host: Host
    methods: tuple[str, ...]
    machine: str


@dataclass(frozen=True, slots=True)
class _Series:
    """What is compared: the same kernel over the same part of hosts of one kind."""

    kernel: str
    numa: int | None
    hardware: str


def run_memory(transport: Transport, hosts: Sequence[Host], options: ProbeOptions, note: Note) -> ProbeResult:
    """GB/s of each host; hosts of one machine (a lab, containers) in turn, so that none disturbs another."""
    ready, findings = _look(transport, hosts, options)
    if not ready:
        return ProbeResult(findings=tuple(findings))
    method = next(each for each in _METHODS if all(each in one.methods for one in ready))
    in_turn = turns(ready, lambda each: each.machine, options.forks)
    options, amount = fit(PROBE, options, cost_s=lambda each: in_turn * _cost_s(each))
    cost = f"about {_cost_s(amount):g} s a host and NUMA node, {said(in_turn * _cost_s(amount))} in all"
    note(f"memory: {len(ready)} hosts by {method}, {cost}{given_up(options)}")
    first = _measured(transport, ready, method, options)
    result = ProbeResult(findings=tuple(findings)) + first
    suspects = {name for found in _slow(result.measurements, hosts).values() for name in found}
    if suspects and has_time(options, len(suspects) * _cost_s(amount)):
        note(f"memory: once more on {', '.join(sorted(suspects))}")
        again = _measured(transport, [one for one in ready if one.host.name in suspects], method, options)
        result = better(result, again, "kernel", _SUSTAINED)
    return marked(result + ProbeResult(findings=tuple(_findings(result.measurements, hosts))), options)


def _look(transport: Transport, hosts: Sequence[Host], options: ProbeOptions) -> tuple[list[_Ready], list[Finding]]:
    def ask(host: Host) -> tuple[CommandResult, Events]:
        events = Events()
        args = ["look", "--venv", venv_of(host)]
        return run_payload(transport, host, "probe_memory", args, timeout_s=_LOOK_S, on_output=events.add), events

    answers = dict(fan_out(hosts, ask, options.forks))
    ready, findings = [], []
    for host in hosts:
        done, events = answers[host]
        told = events.of("ready")
        if done.ok and told:
            ready.append(_Ready(host, tuple(told[0]["methods"]), str(told[0]["machine"]) or host.name))
        else:
            findings.append(host_finding(_NAME, host.name, Status.UNKNOWN, *failure(done, events)))
    return ready, findings


def _measured(transport: Transport, ready: Sequence[_Ready], method: str, options: ProbeOptions) -> ProbeResult:
    """Machines at once, as many as --forks says; the hosts of each in turn."""

    def work(each: _Ready) -> ProbeResult:
        return _one(transport, each.host, method, options)

    return by_machine(transport, ready, lambda each: each.machine, work, options.forks)


def _one(transport: Transport, host: Host, method: str, options: ProbeOptions) -> ProbeResult:
    events = Events()
    wishes = {
        "method": method,
        "seconds": options.duration_s or _USUAL.duration_s,
        "repetitions": _BEST_OF,
        "runs": options.repetitions or _USUAL.repetitions,
    }
    args = ["measure", *(f"--{name}={value}" for name, value in wishes.items())]
    python = f"{venv_of(host)}/bin/python" if method == "torch" else None
    done = run_payload(transport, host, "probe_memory", args, timeout_s=_MEASURE_S, python=python, on_output=events.add)
    measurements = tuple(_measurement(host, method, event, wishes) for event in events.of("measured"))
    if done.ok and measurements:
        return ProbeResult(measurements)
    return ProbeResult(measurements, (host_finding(_NAME, host.name, Status.UNKNOWN, *failure(done, events)),))


def _measurement(host: Host, method: str, event: Event, wishes: Mapping[str, object]) -> Measurement:
    runs, sustained = ([float(rate) for rate in event[key]] for key in ("runs_gb_s", _SUSTAINED))
    value = median(runs)
    numa, array, cache = event["numa"], int(event["array_bytes"]), int(event["cache_bytes"])
    conditions = {
        "kernel": event["kernel"],
        "numa": numa,
        "method": method,
        "threads": event["threads"],
        "array_mib": array // MIB,
        "cache_mib": round(cache / MIB, 1),
        # where little memory is free the arrays are small, and a cache may hold a part of them
        "beyond_cache": array > cache,
        "duration_s": wishes["seconds"],
        # each run's ten best passes, and its best repetition on the whole
        "values_gb_s": runs,
        _SUSTAINED: sustained,
    }
    where = host.name if numa is None else f"{host.name} NUMA {numa}"
    return Measurement(_NAME, (host.name,), value, "GB/s", where, None, spread(runs, value), conditions)


def _cost_s(amount: Amount) -> float:
    """Of one host and NUMA node: copy and triad."""
    return 2 * _BEST_OF * amount.repetitions * (amount.duration_s + 0.1)


def _slow(measurements: Sequence[Measurement], hosts: Sequence[Host]) -> dict[_Series, dict[str, Slow]]:
    """Hosts of one kind: one hardware profile, as far as the inventory names it."""
    kinds = hardware_names(hosts)
    series: dict[_Series, dict[str, Measurement]] = defaultdict(dict)
    for measurement in measurements:
        numa, name = measurement.conditions["numa"], measurement.hosts[0]
        key = _Series(
            str(measurement.conditions["kernel"]), numa if isinstance(numa, int) else None, kinds.get(name, "")
        )
        series[key][name] = measurement
    judged = {
        key: slow(
            {name: usual_run(one, _SUSTAINED) for name, one in values.items()},
            {name: best_run(one, _SUSTAINED) for name, one in values.items()},
        )
        for key, values in series.items()
    }
    return {key: found for key, found in judged.items() if found}


def _findings(measurements: Sequence[Measurement], hosts: Sequence[Host]) -> list[Finding]:
    """One a host: its worst series, and how many others agree."""
    found: dict[str, list[tuple[_Series, Slow]]] = defaultdict(list)
    for series, each in _slow(measurements, hosts).items():
        for name, one in each.items():
            found[name].append((series, one))
    findings = []
    for host in hosts:
        if host.name in found:
            series, worst = min(found[host.name], key=lambda pair: pair[1].value / pair[1].usual)
            where = "" if series.numa is None else f" of NUMA node {series.numa}"
            others = "the other host has" if not worst.culprit else "the median of the others is"
            findings.append(
                Finding(
                    host.name,
                    _NAME,
                    Status.FAILED if worst.culprit else Status.WARNING,
                    subject=series.kernel + where,
                    expected=f"{worst.usual:.1f} GB/s",
                    actual=f"{worst.value:.1f} GB/s; {others} {worst.usual:.1f}",
                    remedy=_REMEDY,
                    kind="host",
                    hosts=(host.name,),
                )
            )
    return findings


PROBE = Probe(
    name=_NAME,
    summary="Memory bandwidth of each host, over all cores and each NUMA node.",
    help="Copy and triad, as in STREAM.  Hosts of one hardware profile are held against each other.",
    run=run_memory,
    options=ProbeOptions,
    results=MeasurementKind(
        units=(Unit("GB/s"),),
        identity=("kernel", "numa", "method", "threads"),
        shown="{kernel}, {threads} threads, {method}",
    ),
    usual=_USUAL,
    least=Amount(repetitions=1, duration_s=0.02),
    cost_s=_cost_s,
    groups=("quick",),
)
