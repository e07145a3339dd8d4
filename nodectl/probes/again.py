"""Of two measurements of the same host the better one counts: something else may have run there the first time."""

from __future__ import annotations

from statistics import median

from nodectl.model.measurement import Measurement
from nodectl.probes.base import ProbeResult


def best_run(measurement: Measurement, runs_key: str) -> float:
    """The best of the runs that stand under this condition; the value itself where none do."""
    return max(_runs(measurement, runs_key))


def usual_run(measurement: Measurement, runs_key: str) -> float:
    """Their median."""
    return median(_runs(measurement, runs_key))


def better(first: ProbeResult, again: ProbeResult, series_condition: str, runs_key: str = "") -> ProbeResult:
    """`first`, with what was better the second time, by value or by the median of these runs.

    A series is told by its place and its condition of this name.
    """
    second = {_series(each, series_condition): each for each in again.measurements}
    kept = []
    for each in first.measurements:
        other = second.get(_series(each, series_condition), each)
        kept.append(other if usual_run(other, runs_key) > usual_run(each, runs_key) else each)
    return ProbeResult(tuple(kept), first.findings + again.findings)


def _runs(measurement: Measurement, runs_key: str) -> list[float]:
    runs = measurement.conditions.get(runs_key)
    return [float(each) for each in runs] if isinstance(runs, list) and runs else [measurement.value]


def _series(measurement: Measurement, condition: str) -> tuple[tuple[str, ...], str, str]:
    return measurement.hosts, measurement.direction, str(measurement.conditions.get(condition))
