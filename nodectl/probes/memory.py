"""The memory probe: copy and triad over all cores and each NUMA node, and the fleet held against itself."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from statistics import median

from nodectl.common.counting import counted
from nodectl.common.units import MIB
from nodectl.facts.versions import venv_of
from nodectl.model.finding import Finding
from nodectl.model.host import Host
from nodectl.model.measurement import Measurement, MeasurementKind, Unit
from nodectl.model.status import Status
from nodectl.probes.base import Amount, Note, Probe, ProbeOptions, ProbeResult, host_finding, spread
from nodectl.probes.each import Node, compared, planned
from nodectl.probes.endpoints import Look
from nodectl.probes.events import Event, failure, run_program
from nodectl.probes.outliers import Comparison, SlowOne, of_itself, slow_finding, worst_of
from nodectl.probes.schedule import at_once
from nodectl.transport.base import Transport

_NAME = "memory"
# of one repetition: several periods of a control group's processor quota
_USUAL = Amount(repetitions=3, duration_s=0.2)
_BEST_OF = 2
_LOOK_S, _MEASURE_S = 90.0, 600.0
# hosts are held against each other by what lasts: a quota on the processor shows in no single pass
_SUSTAINED = "sustained_gb_s"
# two hosts of one machine compute for so long, and one that gets less than this part of the other's time has a quota
_SPIN_S, _FAIR = 1.0, 0.6
# beside other load one second may show either as the other
_SPINS = 3
_METHODS = ("torch", "libc")
_COMPARISON = Comparison(
    lambda measurement: (measurement.conditions["kernel"], measurement.conditions["numa"]),
    series="kernel",
    runs=_SUSTAINED,
    by_runs=True,
)
_QUOTA = "a quota holds its processors back: look at the control group's cpu.max there"
_REMEDY = "look at its memory modules and the processor's frequencies (`nodectl health`), and at who else runs there"


def run_memory(transport: Transport, hosts: Sequence[Host], options: ProbeOptions, note: Note) -> ProbeResult:
    """Measure GB/s of each host; hosts of one machine (a lab, containers) in turn, so that none disturbs another."""
    plan = planned(
        transport,
        hosts,
        PROBE,
        options,
        note,
        look=Look("probes.memory", lambda host: ["look", "--venv", venv_of(host)], "ready", _LOOK_S),
        read=Node,
        cost_s=lambda amount, _: PROBE.cost_s(amount),
        described=lambda nodes: f"{counted(len(nodes), 'host')} by {_method(nodes)}",
    )
    if isinstance(plan, ProbeResult):
        return plan
    method = _method(plan.nodes)

    def blame(result: ProbeResult, slow_ones: Sequence[SlowOne]) -> Iterator[Finding]:
        held_back = _held_back(transport, plan.nodes, result.measurements, slow_ones)
        worst = worst_of([*of_itself(slow_ones), *held_back], lambda measurement: measurement.hosts)
        names = [host.name for host in hosts]
        for measurement, one in sorted(worst, key=lambda pair: names.index(pair[0].hosts[0])):
            given, remedy = measurement.conditions, _QUOTA if one.among_them else _REMEDY
            where = "" if given["numa"] is None else f" of NUMA node {given['numa']}"
            yield slow_finding((measurement, one), f"{given['kernel']}{where}", remedy, digits=".1f")

    return compared(
        transport, hosts, plan, lambda node, _: _measure(transport, node.host, method, plan.amount), _COMPARISON, blame
    )


def _method(nodes: Sequence[Node]) -> str:
    """Return the best means that all have: figures of different means say nothing of each other."""
    return next(method for method in _METHODS if all(method in node.answer["methods"] for node in nodes))


def _measure(transport: Transport, host: Host, method: str, amount: Amount) -> ProbeResult:
    wishes = {
        "method": method,
        "seconds": amount.duration_s,
        "repetitions": _BEST_OF,
        "runs": amount.repetitions,
    }
    args = ["measure", *(f"--{name}={value}" for name, value in wishes.items())]
    python = f"{venv_of(host)}/bin/python" if method == "torch" else None
    done, events = run_program(transport, host, "probes.memory", args, timeout_s=_MEASURE_S, python=python)
    measurements = tuple(_measurement(host, method, event, wishes) for event in events.of("measured"))
    if done.ok and measurements:
        return ProbeResult(measurements)
    return ProbeResult(measurements, (host_finding(_NAME, host.name, Status.UNKNOWN, *failure(done, events)),))


def _held_back(
    transport: Transport, ready: Sequence[Node], measurements: Sequence[Measurement], slow_ones: Sequence[SlowOne]
) -> list[SlowOne]:
    best = {place.hosts[0]: place.value for place in sorted(measurements, key=lambda place: place.value)}
    nodes = {node.host.name: node for node in ready}
    rivals = {
        measurement.hosts[0]: max(one.beside, key=lambda name: best[name])
        for measurement, one in slow_ones
        if one.among_them
    }
    limited = {name for name, other in rivals.items() if _has_quota(transport, nodes[name], nodes[other])}
    # now it is known who of them is slow
    return [
        (measurement, replace(one, culprit=True))
        for measurement, one in slow_ones
        if one.among_them and measurement.hosts[0] in limited
    ]


def _has_quota(transport: Transport, suspect: Node, other: Node) -> bool:
    """Return whether of two hosts of one machine that compute at the same time the suspect gets much less of it."""

    def got(node: Node) -> float | None:
        args = ["spin", f"--seconds={_SPIN_S}"]
        done, events = run_program(transport, node.host, "probes.memory", args, timeout_s=_LOOK_S)
        answers = events.of("spun") if done.ok else []
        return float(answers[0]["got"]) if answers else None

    for _ in range(_SPINS):
        its_share, others = at_once(transport, (suspect, other), got)
        if its_share is not None and others is not None and its_share < _FAIR * others:
            return True
    return False


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


PROBE = Probe(
    name=_NAME,
    summary="Memory bandwidth of each host, over all cores and each NUMA node.",
    help="Copy and triad, as in STREAM.  Hosts of one hardware profile are held against each other.",
    run=run_memory,
    options=ProbeOptions,
    results=MeasurementKind(
        units=(Unit("GB/s"),),
        identity=("kernel", "numa", "method", "threads"),
        places=("numa",),
        shown="{kernel}, {threads} threads, {method}",
    ),
    usual=_USUAL,
    least=Amount(repetitions=1, duration_s=0.02),
    # of copy and triad on one host and NUMA node
    cost_s=lambda amount: 2 * _BEST_OF * amount.repetitions * (amount.duration_s + 0.1),
    groups=("quick",),
    feels=("sysctl.vm", "sysctl.kernel"),
)
