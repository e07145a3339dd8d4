"""The time that a probe takes, and how much less of it fits into the time that there is."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace

from nodectl.errors import UsageError
from nodectl.probes.base import Amount, Own, Probe, ProbeOptions, ProbeResult


class BudgetError(UsageError):
    """Not even the least of a probe fits."""


Cost = Callable[[Amount], float]


def share_s(left_s: float, probes_left: int) -> float:
    """Return what the next of several probes may take: what it leaves is there for those after it."""
    return max(0.0, left_s) / probes_left


def left_s(ends_at: float | None) -> float | None:
    """Return the seconds until a moment of the monotonic clock; None if there is no such limit."""
    return None if ends_at is None else ends_at - time.monotonic()


def has_time(options: ProbeOptions, seconds: float) -> bool:
    """Return whether something that was not planned still fits."""
    left = left_s(options.ends_at)
    return left is None or left >= seconds


def fit(probe: Probe[Own], options: Own, rounds: int = 1, cost_s: Cost | None = None) -> tuple[Own, Amount]:
    """Return the options with as much of what is asked for, else usual, as fits into their time; and how much that is.

    What is asked for may be less than the probe's least. `cost_s` goes before the probe's own, where more is known.
    """
    repetitions = options.repetitions or probe.usual.repetitions
    duration_s = options.duration_s or probe.usual.duration_s
    wish = Amount(repetitions, duration_s, rounds)
    least = Amount(min(probe.least.repetitions, repetitions), min(probe.least.duration_s, duration_s))
    amount, trimmed = fitted(probe.name, wish, least, cost_s or probe.cost_s, left_s(options.ends_at))
    given = replace(options, repetitions=amount.repetitions, duration_s=amount.duration_s, trimmed=trimmed)
    return given, amount


def given_up(options: ProbeOptions) -> str:
    """For the line that says what it will cost."""
    return f"; to fit the budget: {', '.join(options.trimmed)}" if options.trimmed else ""


def marked(result: ProbeResult, options: ProbeOptions) -> ProbeResult:
    """Each measurement says what was given up for the budget, where something was."""
    if not options.trimmed:
        return result
    trimmed = list(options.trimmed)
    measurements = tuple(measurement.with_conditions(trimmed=trimmed) for measurement in result.measurements)
    return ProbeResult(measurements, result.findings)


def fitted(probe: str, wish: Amount, least: Amount, cost: Cost, time_s: float | None) -> tuple[Amount, tuple[str, ...]]:
    """Return the most of `wish` that fits, and what was given up: first repetitions, then their length, then rounds.

    BudgetError names the time that `least` takes.
    """
    if time_s is None or cost(wish) <= time_s:
        return wish, ()
    for amount in _smaller(wish, least):
        if cost(amount) <= time_s:
            cut = [
                (name, getattr(wish, name), getattr(amount, name)) for name in ("repetitions", "duration_s", "rounds")
            ]
            return amount, tuple(f"{name} {before:g} -> {after:g}" for name, before, after in cut if before != after)
    message = f"the {probe} probe takes at least {cost(least):.3g} s here, and {max(0.0, time_s):.3g} s are left"
    raise BudgetError(message, "give more time with --budget, or select fewer hosts with --limit")


def _smaller(wish: Amount, least: Amount) -> Iterator[Amount]:
    amount = wish
    for repetitions in range(wish.repetitions - 1, least.repetitions - 1, -1):
        amount = replace(amount, repetitions=repetitions)
        yield amount
    while amount.duration_s > least.duration_s:
        amount = replace(amount, duration_s=max(least.duration_s, amount.duration_s / 2))
        yield amount
    for rounds in range(wish.rounds - 1, least.rounds - 1, -1):
        yield replace(amount, rounds=rounds)
