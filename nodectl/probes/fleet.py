"""The fleet's own median, with its spread: what values are held beside where no floor is known for them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from statistics import median

from nodectl.common.counting import counted
from nodectl.common.statistics import QUORUM, robust_deviation
from nodectl.common.units import format_value
from nodectl.model.measurement import Measurement
from nodectl.probes.registry import kind_of


def with_fleet(measurements: Sequence[Measurement], hardware: Mapping[str, str]) -> tuple[Measurement, ...]:
    """Measurements without a floor say what the others of their kind reach; `hardware` is each host's profile, by name.

    Fewer than three of a kind tell nothing of what is usual. Who stands out is the probe's own finding.
    """
    groups: dict[Hashable, list[Measurement]] = defaultdict(list)
    for measurement in measurements:
        if measurement.expected is None:
            groups[_kind(measurement, hardware)].append(measurement)
    said = {kind: _reference(group) for kind, group in groups.items() if len(group) >= QUORUM}
    return tuple(_with(measurement, said.get(_kind(measurement, hardware))) for measurement in measurements)


def _with(measurement: Measurement, reference: str | None) -> Measurement:
    if reference is None or measurement.expected is not None:
        return measurement
    return measurement.with_conditions(reference=reference)


def _kind(measurement: Measurement, hardware: Mapping[str, str]) -> Hashable:
    """Return what two measurements must share to be compared: the probe's own conditions, but for the place."""
    what = kind_of(measurement.probe).what(measurement.conditions)
    profiles = tuple(sorted({hardware.get(name, "") for name in measurement.hosts}))
    return measurement.probe, measurement.unit, profiles, tuple(sorted(what.items()))


def _reference(group: Sequence[Measurement]) -> str:
    values = [measurement.value for measurement in group]
    usual = median(values)
    spread = f", standard deviation {robust_deviation(values, usual) / usual:.1%}" if usual else ""
    return f"the fleet's own median: {format_value(usual, group[0].unit)} of {counted(len(group), 'value')}{spread}"
