"""Who is slower than the others of a fleet.

By the median of the others and their own spread, so that one bad host hides neither itself nor another.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from nodectl.common.statistics import QUORUM, robust_deviation
from nodectl.model.host import Host
from nodectl.model.measurement import Measurement
from nodectl.probes.base import ProbeResult

# a part that healthy hosts of one kind stay within
TOLERANCE = 0.15
# of the others' own spread (as many standard deviations, had it a bell's shape), where that is wider
_DEVIATIONS = 5.0
# between two hosts, where no spread tells what is usual
_PAIR_TOLERANCE = 0.3


@dataclass(frozen=True, slots=True)
class Slow:
    """A host below the others; `culprit` is False where it cannot be told who is right."""

    value: float
    usual: float
    culprit: bool = True


def hardware_names(hosts: Sequence[Host]) -> dict[str, str]:
    """The name of each host's hardware profile, empty where it has none: only hosts of one kind are compared."""
    # not at the top: profiles bring pydantic, which takes longer to import than the help of all probes
    from nodectl.profiles.host import hardware_name

    return {host.name: hardware_name(host) for host in hosts}


def slow(values: Mapping[str, float], best: Mapping[str, float]) -> dict[str, Slow]:
    """The hosts that even at their `best` are well below the median of the others; of two that differ much, both."""
    if len(values) < QUORUM:
        return _pair(values)
    found = {}
    for host, value in values.items():
        others = [each for name, each in values.items() if name != host]
        usual = median(others)
        spread = robust_deviation(others, usual)
        if best[host] < usual - max(TOLERANCE * usual, _DEVIATIONS * spread):
            found[host] = Slow(value, usual)
    return found


def _pair(values: Mapping[str, float]) -> dict[str, Slow]:
    if len(values) < 2 or min(values.values()) >= (1 - _PAIR_TOLERANCE) * max(values.values()):
        return {}
    return {
        host: Slow(value, next(each for name, each in values.items() if name != host), culprit=False)
        for host, value in values.items()
    }


def best_run(measurement: Measurement, runs_key: str) -> float:
    """The best of the runs that stand under this condition; the value itself where none do."""
    return max(_runs(measurement, runs_key))


def usual_run(measurement: Measurement, runs_key: str) -> float:
    """The median of the runs that stand under this condition; the value itself where none do."""
    return median(_runs(measurement, runs_key))


def better(first: ProbeResult, again: ProbeResult, series_condition: str, runs_key: str = "") -> ProbeResult:
    """`first`, with what was better the second time, by value or by the median of these runs.

    A series is told by its place and its condition of this name.
    """
    second = {_series(measurement, series_condition): measurement for measurement in again.measurements}
    kept = []
    for measurement in first.measurements:
        other = second.get(_series(measurement, series_condition), measurement)
        kept.append(other if usual_run(other, runs_key) > usual_run(measurement, runs_key) else measurement)
    return ProbeResult(tuple(kept), first.findings + again.findings)


def _runs(measurement: Measurement, runs_key: str) -> list[float]:
    runs = measurement.conditions.get(runs_key)
    return [float(run) for run in runs] if isinstance(runs, list) and runs else [measurement.value]


def _series(measurement: Measurement, condition: str) -> tuple[tuple[str, ...], str, str]:
    return measurement.hosts, measurement.direction, str(measurement.conditions.get(condition))
