"""Counters: a number alone says nothing, its change since the last reading in the same boot does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class Previous:
    """A host's counters at its last reading; those of another boot say nothing about this one."""

    time: float
    boot_id: str | None
    counters: Mapping[str, int] = field(default_factory=dict)


class Growth(NamedTuple):  # made as fast as a tuple: a host has hundreds
    """A counter's present number and its change `by`; with no reading to compare, `by` is None and `why` says why.

    `stuck`: the counter stands at its highest number and cannot show a change, so an unchanged number proves nothing.
    """

    value: int
    by: int | None
    hours: float = 0.0
    stuck: bool = False
    why: str = ""

    @property
    def change(self) -> int:
        """Return the number that limits are compared with: the change, else the counter itself."""
        return self.value if self.by is None else self.by

    @property
    def text(self) -> str:
        """Return `12 more in 3.0 h, 40 in all`, or the number and why its change is not known."""
        if self.stuck:
            return f"{self.value}, where the counter ends: it proves nothing until it is cleared"
        if self.by is None:
            return f"{self.value} in all ({self.why})"
        return f"{self.by} more in {self.hours:.1f} h, {self.value} in all"


# of most counters of a host that was not read before: hundreds, and all alike
NOTHING_YET = Growth(0, None, why="first reading")


def growth(
    previous: Previous | None, boot_id: str | None, now: float, key: str, value: int, last: int | None = None
) -> Growth:
    """Return how `value` differs from the last reading of `key`; the counter stops at the number `last`."""
    if previous is None and value == 0 != last:
        return NOTHING_YET
    stuck = last is not None and value == last
    if previous is None or key not in previous.counters:
        return Growth(value, None, stuck=stuck, why="first reading")
    if previous.boot_id != boot_id:
        return Growth(value, None, stuck=stuck, why="first reading since the host booted")
    before = previous.counters[key]
    if value < before:
        return Growth(value, None, stuck=stuck, why="the counter was reset")
    # a counter that reached its highest number since the last reading has changed
    stuck = stuck and before == value
    return Growth(value, value - before, max(0.0, now - previous.time) / 3600, stuck)
