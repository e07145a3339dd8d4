"""A measured value with its unit and the conditions under which it was taken, and what a probe says of its values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from nodectl.common.units import format_value, lower_is_better

Conditions = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Measurement:
    """`value` is the median over repetitions; `spread` is (max - min) / median; `hosts` in the order of `direction`."""

    probe: str
    hosts: tuple[str, ...]
    value: float
    unit: str
    direction: str = ""
    expected: float | None = None
    spread: float | None = None
    conditions: Conditions = field(default_factory=dict)

    def with_conditions(self, **more: object) -> Measurement:
        """Return the same measurement, these conditions added or replaced."""
        return replace(self, conditions={**self.conditions, **more})


@dataclass(frozen=True, slots=True)
class Unit:
    """A unit in which values are measured, and how a table writes them.

    `decimals` None is three digits, in the unit of the same kind that keeps them short (20.8 ms for 20836 us). `beside`
    is the value in another unit, shown after it, with the factor to it. `lower_is_better` is needed where the unit
    itself is neither a known time nor a rate. `word` says what the value is, where the unit alone would mislead.
    """

    name: str
    decimals: int | None = None
    beside: tuple[str, float] | None = None
    lower_is_better: bool | None = None
    word: str = ""

    def text(self, value: float) -> str:
        """Return `1.25 GB/s busbw = 10.0 Gbit/s`."""
        other = f" = {format_value(self.beside[1] * value, self.beside[0])}" if self.beside else ""
        return f"{self.short(value)}{f' {self.word}' if self.word else ''}{other}"

    def short(self, value: float) -> str:
        """Return `1.25 GB/s`."""
        if self.decimals is None:
            return format_value(value, self.name)
        return f"{value:,.{self.decimals}f} {self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasurementKind:
    """Hold what the values of one probe are: their units, what tells two of them apart, and how a table shows them.

    `identity` names the conditions that the operator or the probe chose: measurements that agree in them are of the
    same thing, whatever was found beside (versions, retransmits). The history keeps them as text in this order: do not
    change it. `shown` is what a table tells of the conditions: a format such as `{pattern}, {threads} threads`, or a
    function.
    """

    units: tuple[Unit, ...] = ()
    identity: tuple[str, ...] = ()
    places: tuple[str, ...] = ()
    shown: str | Callable[[Conditions], str] | None = None
    caption: str = ""

    def unit(self, name: str) -> Unit:
        """Return the declared unit of this name; one that is only written as it is, for a value of an older nodectl."""
        return next((unit for unit in self.units if unit.name == name), Unit(name))

    def lower_is_better(self, unit: str) -> bool | None:
        """Return None if neither the declaration nor the unit says which of two values is the better one."""
        declared = self.unit(unit).lower_is_better
        return lower_is_better(unit) if declared is None else declared

    def chosen(self, conditions: Conditions) -> dict[str, object]:
        """Return the conditions that make it this measurement and no other, its size among them."""
        return {name: conditions[name] for name in ("size_bytes", *self.identity) if _is_given(conditions.get(name))}

    def what(self, conditions: Conditions) -> dict[str, str]:
        """Return the chosen conditions by name; of a place only that it is one, not which."""
        chosen = {name: str(value) for name, value in self.chosen(conditions).items()}
        return {name: "" if name in self.places else value for name, value in chosen.items()}

    def subject(self, conditions: Conditions) -> str:
        """Return the chosen conditions but for the size, as text: `all_reduce, backend nccl, ranks 16`."""
        parts = []
        for name in self.identity:
            value = conditions.get(name)
            if _is_given(value):
                text = ",".join(dict.fromkeys(map(str, value))) if isinstance(value, list | tuple) else str(value)
                parts.append(text if name in _WITHOUT_NAME else f"{name} {text}")
        return ", ".join(parts)

    def conditions(self, conditions: Conditions) -> str:
        """Return what stands beside the value in a table."""
        if callable(self.shown):
            return self.shown(conditions)
        if self.shown is not None:
            return self.shown.format_map(_Known(conditions))
        scalars = (f"{name} {value}" for name, value in conditions.items() if isinstance(value, str | int | float))
        return ", ".join(list(scalars)[:_SHOWN])


# a value of these says what it is
_WITHOUT_NAME = ("collective", "operation", "kernel")
# so many conditions of a measurement of which no probe says what to show
_SHOWN = 4


class _Known(dict[str, object]):
    def __missing__(self, key: str) -> None:
        return None


def _is_given(value: object) -> bool:
    return value is not None and value != ""


@dataclass(frozen=True, slots=True)
class Change:
    """One measurement then and now; `outside_spreads` is None if a spread is not known."""

    probe: str
    hosts: tuple[str, ...]
    direction: str
    subject: str
    size_bytes: int | None
    unit: str
    old: float
    new: float
    change_percent: float | None
    outside_spreads: bool | None
    old_time: str | None = None


@dataclass(frozen=True, slots=True)
class Comparison:
    """`against` is what the operator asked for; `only_new` and `only_old` name what has no counterpart."""

    against: str
    changes: tuple[Change, ...] = ()
    only_new: tuple[str, ...] = ()
    only_old: tuple[str, ...] = ()
