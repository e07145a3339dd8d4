"""Measurements of one thing over the fleet: which belong together, their median, and who is worst."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median

from nodectl.common.natural import natural
from nodectl.model.measurement import Measurement, MeasurementKind, Unit

KindOf = Callable[[str], MeasurementKind]
# a condition of what was measured a second time: suspects, and healthy ones beside them
AGAIN = "again"
_LEAST_HOSTS = 3
# of the cells: a ring of many hosts is no matrix
_LEAST_FILLED = 0.5


@dataclass(frozen=True, slots=True)
class Series:
    """`members` are first measurements, `later` repeated ones; `what` are the conditions that all members share."""

    probe: str
    kind: MeasurementKind
    members: tuple[Measurement, ...]
    what: str
    later: dict[tuple[object, ...], Measurement] = field(default_factory=dict)

    @property
    def unit(self) -> Unit:
        """The unit of all members."""
        return self.kind.unit(self.members[0].unit)

    @property
    def lower_is_better(self) -> bool | None:
        """Return None if nobody says which of two values is the better one."""
        return self.kind.lower_is_better(self.members[0].unit)

    @property
    def hosts(self) -> list[str]:
        """All hosts that were measured, in natural order."""
        return sorted({host for member in self.members for host in member.hosts}, key=natural)

    @property
    def median(self) -> float:
        """Return the median of the first measurements: what is measured again are mostly suspects."""
        return median(member.value for member in self.members)

    def is_alike(self) -> bool:
        """Return whether all members read the same."""
        return len({self.unit.short(member.value) for member in self.members}) == 1

    def is_matrix(self) -> bool:
        """Return whether its members are pairs of three hosts or more, and enough of all pairs: a ring is not."""
        pairs, hosts = {tuple(member.hosts) for member in self.members if len(member.hosts) == 2}, len(self.hosts)
        possible = hosts * (hosts - 1) / (1 if any(member.direction for member in self.members) else 2)
        return len(pairs) == len(self.members) and hosts >= _LEAST_HOSTS and len(pairs) >= _LEAST_FILLED * possible

    def worst(self, most: int) -> list[Measurement]:
        """Return the worst first; of values that are neither better nor worse those furthest from the median."""
        if self.lower_is_better is None:
            middle = self.median
            ordered = sorted(self.members, key=lambda member: -abs(member.value - middle))
        else:
            ordered = sorted(self.members, key=lambda member: member.value, reverse=self.lower_is_better)
        return ordered[:most]

    def off_percent(self, member: Measurement) -> float | None:
        """Return how far a member is from the median, in percent of it."""
        middle = self.median
        return 100 * (member.value / middle - 1) if middle else None

    def again(self, member: Measurement) -> Measurement | None:
        """Return the last measurement of the same hosts and direction, where they were measured again."""
        return self.later.get(_place(member))

    def what_of(self, member: Measurement) -> str:
        """Return what a member shows of its conditions that not all show."""
        common = self.what.split(", ")
        return ", ".join(word for word in _words(self.kind, member) if word not in common)


def fleet_series(measurements: Sequence[Measurement], kind_of: KindOf) -> list[Series]:
    """In the order of their first measurements; each with a name of its own among those of its probe."""
    groups: dict[tuple[object, ...], list[Measurement]] = defaultdict(list)
    for measurement in measurements:
        chosen = kind_of(measurement.probe).what(measurement.conditions)
        groups[measurement.probe, measurement.unit, tuple(chosen.items())].append(measurement)
    series = [_series(probe, kind_of(str(probe)), members) for (probe, *_), members in groups.items()]
    return _told_apart(series)


def _series(probe: object, kind: MeasurementKind, measured: Sequence[Measurement]) -> Series:
    first = [one for one in measured if not one.conditions.get(AGAIN)]
    places = {_place(one) for one in first}
    # a pair of which only the second measurement is there is a member all the same
    first += [one for one in measured if one.conditions.get(AGAIN) and _place(one) not in places]
    later = {_place(one): one for one in measured if one.conditions.get(AGAIN) and _place(one) in places}
    words, *others = [_words(kind, one) for one in first]
    shared = ", ".join(word for word in words if all(word in of_other for of_other in others))
    return Series(str(probe), kind, tuple(first), shared, later)


def _told_apart(series: Sequence[Series]) -> list[Series]:
    named = []
    for one in series:
        alike = [other for other in series if (other.probe, other.what) == (one.probe, one.what)]
        if len(alike) == 1:
            named.append(one)
            continue
        chosen = [other.kind.what(other.members[0].conditions) for other in alike]
        conditions = one.kind.what(one.members[0].conditions)
        differing = [name for name in conditions if len({other.get(name) for other in chosen}) > 1]
        differences = [_text(name, conditions[name]) for name in differing if conditions[name]] or [one.unit.name]
        what = ", ".join(filter(None, [*differences, one.what]))
        named.append(Series(one.probe, one.kind, one.members, what, one.later))
    return named


def _text(name: str, value: str) -> str:
    return value if value.replace(" ", "").isalpha() and value not in ("True", "False", "None") else f"{name} {value}"


def _place(measurement: Measurement) -> tuple[object, ...]:
    return measurement.hosts, measurement.direction


def _words(kind: MeasurementKind, measurement: Measurement) -> list[str]:
    return kind.conditions(measurement.conditions).split(", ")
