"""Measurements held against earlier ones."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Change:
    """One measurement then and now; `outside_spreads` is None where a spread is not known."""

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
