"""Hosts that are slower than the others of a fleet.

By the median of the others and their own spread, so that one bad host hides neither itself nor another.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import TYPE_CHECKING

from nodectl.common.nodeset import fold
from nodectl.common.statistics import QUORUM, robust_deviation
from nodectl.errors import ProfileError
from nodectl.model.finding import Finding
from nodectl.model.host import Host
from nodectl.model.measurement import Measurement
from nodectl.model.status import Status
from nodectl.probes.base import ProbeResult, host_finding

if TYPE_CHECKING:
    from nodectl.profiles.schema import Hardware

# a part that healthy hosts of one kind stay within
TOLERANCE = 0.15
# of the others' own spread (as many standard deviations, had it a bell's shape), where that is wider
_DEVIATIONS = 5.0
# between two hosts, if no spread tells what is usual
_PAIR_TOLERANCE = 0.3


@dataclass(frozen=True, slots=True)
class Slow:
    """A host below the others; `culprit` is False if it cannot be told who is right.

    `usual` is the median of so many `others`, `deviation` their robust standard deviation as a part of it.
    `beside` are the hosts of the same machine. They share what was measured: the value is then the machine's, unless
    `among_them` says that the host is only slower than these.
    """

    value: float
    usual: float
    culprit: bool = True
    beside: tuple[str, ...] = ()
    among_them: bool = False
    others: int = 0
    deviation: float = 0.0

    @property
    def share(self) -> float:
        """Return what it reaches, as a part of what is usual."""
        return self.value / self.usual if self.usual else 1.0


def hardware_known(host: Host) -> Hardware | None:
    """Return the host's hardware profile; None if the inventory names none, or one that cannot be read."""
    from nodectl.profiles.host import hardware_of

    try:
        return hardware_of(host)
    except ProfileError:
        return None


def slow(values: Mapping[str, float], best: Mapping[str, float]) -> dict[str, Slow]:
    """Return the hosts that even at their `best` are well below the others' median; of two that differ much, both."""
    if len(values) < QUORUM:
        if len(values) < 2 or min(values.values()) >= (1 - _PAIR_TOLERANCE) * max(values.values()):
            return {}
        (one, its), (other, the_others) = values.items()
        return {one: Slow(its, the_others, culprit=False), other: Slow(the_others, its, culprit=False)}
    slow_ones = {}
    for host, value in values.items():
        others = [other for name, other in values.items() if name != host]
        usual = median(others)
        spread = robust_deviation(others, usual)
        if best[host] < usual - max(TOLERANCE * usual, _DEVIATIONS * spread):
            slow_ones[host] = Slow(value, usual, others=len(others), deviation=spread / usual)
    return slow_ones


def better(first: ProbeResult, again: ProbeResult, series_condition: str, runs_key: str = "") -> ProbeResult:
    """Return `first`, with what was better the second time, by value or by the median of these runs; each finding once.

    A series is told by its place and its condition of this name.
    """
    second = {_series(measurement, series_condition): measurement for measurement in again.measurements}
    kept = []
    for measurement in first.measurements:
        other = second.get(_series(measurement, series_condition), measurement)
        is_better = median(_runs(other, runs_key)) > median(_runs(measurement, runs_key))
        kept.append(other if is_better else measurement)
    new = tuple(finding for finding in again.findings if finding not in first.findings)
    return ProbeResult(tuple(kept), first.findings + new)


SlowOne = tuple[Measurement, Slow]


@dataclass(frozen=True, slots=True)
class Comparison:
    """How a probe's measurements are held against those of other hosts of one hardware profile.

    `alike` must be the same for two measurements to be compared, `series` is the condition that tells those of one
    place apart. The condition `runs` holds the runs, whose best counts for a suspect; with `by_runs` their median
    stands for the value.

    Hosts of one machine share its memory, disks and processors, though not its GPUs: machines are compared there, each
    by the best of its hosts.
    """

    alike: Callable[[Measurement], Hashable]
    series: str
    runs: str = "values"
    by_runs: bool = False

    def slow_ones(
        self, measurements: Sequence[Measurement], hosts: Sequence[Host], machines: Mapping[str, str] | None = None
    ) -> list[SlowOne]:
        """Return the measurements below the others of their kind; `machines` by host, where they are known."""
        # not at the top: profiles bring pydantic, which takes longer to import than the help of all probes
        from nodectl.profiles.host import hardware_name

        kinds = {host.name: hardware_name(host) for host in hosts}
        groups: dict[Hashable, dict[str, Measurement]] = defaultdict(dict)
        for measurement in measurements:
            kind = kinds.get(measurement.hosts[0], ""), self.alike(measurement)
            groups[kind][measurement.direction] = measurement
        return [pair for group in groups.values() for pair in self._slow_of(group, machines or {})]

    @property
    def value_key(self) -> str:
        """Return the condition whose runs stand for the value; empty if it stands for itself."""
        return self.runs if self.by_runs else ""

    def _slow_of(self, group: Mapping[str, Measurement], machines: Mapping[str, str]) -> Iterator[SlowOne]:
        values = {place: median(_runs(measurement, self.value_key)) for place, measurement in group.items()}
        best = {place: max(_runs(measurement, self.runs)) for place, measurement in group.items()}
        sharing: dict[tuple[str, ...], list[str]] = defaultdict(list)
        for place, measurement in group.items():
            # a GPU, or a host whose machine is not known, is by itself
            machine = machines.get(measurement.hosts[0]) if measurement.conditions.get("gpu") is None else None
            numa = str(measurement.conditions.get("numa"))
            sharing[(machine, numa) if machine else (place,)].append(place)
        first = [max(places, key=values.__getitem__) for places in sharing.values()]
        of_machines = slow({place: values[place] for place in first}, best)
        for places in sharing.values():
            slow_places = {place: of_machines[place] for place in places if place in of_machines}
            # who is slow among those of one machine is not told by two of them either
            slow_places = slow_places or {
                place: replace(one, among_them=True)
                for place, one in slow({place: values[place] for place in places}, best).items()
            }
            for place, one in slow_places.items():
                beside = tuple(sorted({group[other].hosts[0] for other in places} - {group[place].hosts[0]}))
                yield group[place], replace(one, beside=beside)


def of_itself(slow_ones: Iterable[SlowOne]) -> list[SlowOne]:
    """Return it without those that are only slower than others of their machine: what they share is nobody's alone."""
    return [pair for pair in slow_ones if not pair[1].among_them]


def worst_of(slow_ones: Iterable[SlowOne], key: Callable[[Measurement], Hashable]) -> list[SlowOne]:
    """Return the one that reaches least of the usual, of all with the same key."""
    worst: dict[Hashable, SlowOne] = {}
    for measurement, one in slow_ones:
        lowest = worst.setdefault(key(measurement), (measurement, one))
        if one.share < lowest[1].share:
            worst[key(measurement)] = measurement, one
    return list(worst.values())


def slow_finding(
    pair: SlowOne, subject: str, remedy: str, *, digits: str, other: str = "the other host has"
) -> Finding:
    """Failed if there are enough others to know who is right; values are written with these `digits`."""
    measurement, one = pair
    others = "the median of the others is" if one.culprit else other
    usual = f"{one.usual:{digits}}"
    spread = f", the median of {one.others} others (standard deviation {one.deviation:.1%})" if one.others else ""
    shared = f"; the machine's, with {fold(one.beside)}" if one.beside and not one.among_them else ""
    return host_finding(
        measurement.probe,
        measurement.hosts[0],
        Status.FAILED if one.culprit else Status.WARNING,
        f"{one.value:{digits}} {measurement.unit}; {others} {usual}{shared}",
        remedy,
        subject=subject,
        expected=f"{usual} {measurement.unit}{spread}",
    )


def _runs(measurement: Measurement, runs_key: str) -> list[float]:
    """Return the runs that stand under this condition; the value itself if none do."""
    runs = measurement.conditions.get(runs_key)
    return [float(run) for run in runs] if isinstance(runs, list) and runs else [measurement.value]


def _series(measurement: Measurement, condition: str) -> tuple[tuple[str, ...], str, str]:
    return measurement.hosts, measurement.direction, str(measurement.conditions.get(condition))
