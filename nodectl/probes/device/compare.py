"""Devices of one kind held against each other over the fleet: the slow ones are measured again, then named."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence

from nodectl.model.finding import Finding
from nodectl.model.host import Host
from nodectl.model.measurement import Measurement
from nodectl.model.status import Status
from nodectl.probes.base import Note, ProbeOptions, ProbeResult
from nodectl.probes.budget import has_time, marked
from nodectl.probes.device.devices import RUNS_KEY, Kind, called, measured, planned
from nodectl.probes.outliers import Slow, best_run, better, hardware_names, slow
from nodectl.transport.base import Transport

# what must be alike for two measurements to be compared, besides the hosts' hardware profile
Likeness = Callable[[Measurement], Hashable]
_REMEDY = "compare clocks, power limit, temperature and throttle reasons (in the JSON's conditions) with the others'"


def compared(
    transport: Transport,
    hosts: Sequence[Host],
    options: ProbeOptions,
    note: Note,
    kind: Kind,
    alike: Likeness,
    series: str,
    blame: Callable[[Sequence[tuple[Measurement, Slow]]], list[Finding]] | None = None,
) -> ProbeResult:
    """The whole of a probe: look, measure, measure suspects again, name them."""
    plan, findings = planned(transport, hosts, options, note, kind)
    result = ProbeResult(findings=tuple(findings))
    if plan is None:
        return result
    first = measured(transport, plan, plan.nodes)
    suspects = {each.hosts[0] for each, _ in slow_ones(first.measurements, hosts, alike)}
    again = [node for node in plan.nodes if node.host.name in suspects]
    if again and has_time(plan.options, plan.cost_s(again)):
        note(f"{kind.name}: once more on {', '.join(sorted(suspects))}")
        second = measured(transport, plan, again)
        told = set(first.findings)
        first = better(first, ProbeResult(second.measurements), series)
        first += ProbeResult(findings=tuple(finding for finding in second.findings if finding not in told))
    found = slow_ones(first.measurements, hosts, alike)
    return marked(result + first + ProbeResult(findings=tuple((blame or slow_findings)(found))), plan.options)


def slow_ones(
    measurements: Sequence[Measurement], hosts: Sequence[Host], alike: Likeness
) -> list[tuple[Measurement, Slow]]:
    """Those below the others of their kind."""
    kinds = hardware_names(hosts)
    groups: dict[Hashable, dict[str, Measurement]] = defaultdict(dict)
    for measurement in measurements:
        groups[kinds.get(measurement.hosts[0], ""), alike(measurement)][measurement.direction] = measurement
    found = []
    for own in groups.values():
        values = {name: each.value for name, each in own.items()}
        best = {name: best_run(each, RUNS_KEY) for name, each in own.items()}
        found += [(own[name], one) for name, one in slow(values, best).items()]
    return found


def slow_findings(found: Sequence[tuple[Measurement, Slow]]) -> list[Finding]:
    """One a device: its worst figure."""
    worst: dict[tuple[str, object], tuple[Measurement, Slow]] = {}
    for each, one in found:
        key = (each.hosts[0], each.conditions.get("gpu"))
        if key not in worst or _share(one) < _share(worst[key][1]):
            worst[key] = (each, one)
    return [slow_finding(each, one, subject_of(each)) for each, one in worst.values()]


def slow_finding(each: Measurement, one: Slow, subject: str) -> Finding:
    """Failed where there are enough others to know who is right."""
    others = "the median of the others is" if one.culprit else "the other one has"
    return Finding(
        each.hosts[0],
        each.probe,
        Status.FAILED if one.culprit else Status.WARNING,
        subject=subject,
        expected=f"{one.usual:.4g} {each.unit}",
        actual=f"{one.value:.4g} {each.unit}; {others} {one.usual:.4g}",
        remedy=_REMEDY,
        kind="host",
        hosts=each.hosts,
    )


def subject_of(each: Measurement) -> str:
    """`GPU 3, bf16`, `GPU 3, to it, near memory`, `CPU, fp32`."""
    given = each.conditions
    gpu = given.get("gpu")
    words = [called(gpu if isinstance(gpu, int) else None), given.get("precision"), given.get("transfer")]
    memory = f"{given['memory']} memory" if given.get("memory") else None
    return ", ".join(str(word) for word in (*words, memory) if word)


def _share(one: Slow) -> float:
    return one.value / one.usual if one.usual else 1.0
