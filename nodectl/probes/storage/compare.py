"""Whose storage is slow: each host's rates against those of its like."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from nodectl.model.finding import Finding
from nodectl.model.host import Host
from nodectl.model.measurement import Measurement
from nodectl.model.status import Status
from nodectl.probes.again import best_run
from nodectl.probes.outliers import Slow, slow
from nodectl.profiles.host import hardware_name

_NAME = "storage"
# the condition that holds the runs
RUNS_KEY = "values"
# what disks of one kind differ by, new and worn, empty and nearly full, is no fault
_SLOW_SHARE = 0.5
_REMEDY = "look at its disk (`nodectl health`: kernel log, mounts), at who else uses it, and at the way to it"
_Series = tuple[str, str]


def slow_by_pattern(measurements: Sequence[Measurement], hosts: Sequence[Host]) -> dict[_Series, dict[str, Slow]]:
    """By pattern, among hosts of one hardware profile and one kind of file system."""
    kinds = {host.name: hardware_name(host) for host in hosts}
    series: dict[_Series, dict[str, Measurement]] = defaultdict(dict)
    for each in measurements:
        name = each.hosts[0]
        kind = f"{kinds.get(name, '')} {each.conditions['file_system']} {each.conditions['direct']}"
        series[str(each.conditions["pattern"]), kind][name] = each
    judged = {
        key: slow(
            {name: one.value for name, one in own.items()}, {name: best_run(one, RUNS_KEY) for name, one in own.items()}
        )
        for key, own in series.items()
    }
    far = {
        key: {
            name: each
            for name, each in found.items()
            if best_run(series[key][name], RUNS_KEY) < _SLOW_SHARE * each.usual
        }
        for key, found in judged.items()
    }
    return {key: found for key, found in far.items() if found}


def slow_hosts(measurements: Sequence[Measurement], hosts: Sequence[Host]) -> set[str]:
    """Names of those that are slow in any pattern."""
    return {name for found in slow_by_pattern(measurements, hosts).values() for name in found}


def slow_findings(measurements: Sequence[Measurement], hosts: Sequence[Host]) -> Iterator[Finding]:
    """One a host: its worst pattern."""
    units = {str(each.conditions["pattern"]): each.unit for each in measurements}
    found: dict[str, list[tuple[str, Slow]]] = defaultdict(list)
    for (pattern, _), each in slow_by_pattern(measurements, hosts).items():
        for name, one in each.items():
            found[name].append((pattern, one))
    for host in hosts:
        if host.name in found:
            pattern, worst = min(found[host.name], key=lambda pair: pair[1].value / pair[1].usual)
            unit = units[pattern]
            others = "the other host has" if not worst.culprit else "the median of the others is"
            yield Finding(
                host.name,
                _NAME,
                Status.FAILED if worst.culprit else Status.WARNING,
                subject=pattern,
                expected=f"{worst.usual:.0f} {unit}",
                actual=f"{worst.value:.0f} {unit}; {others} {worst.usual:.0f}",
                remedy=_REMEDY,
                kind="host",
                hosts=(host.name,),
            )
