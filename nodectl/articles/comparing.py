"""A measurement next to others: the published figure with the nearest conditions, a baseline by its ratio.

A ratio is how many times as fast one thing is as another, with its interval and verdict, by the rules of trials.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from statistics import median

from nodectl.articles.claims import Condition, Figure
from nodectl.common.units import digits
from nodectl.model.measurement import Measurement
from nodectl.model.trial import Pair, Series
from nodectl.model.verdict import Outcome, Verdict

_SAME = 1e-3


def nearest(figures: Sequence[Figure], measured: Mapping[str, object]) -> Figure:
    """Return the figure of which the fewest conditions differ from these; the first of several."""

    def differing(figure: Figure) -> int:
        return sum(not _is_same(theirs, measured.get(name)) for name, theirs in figure.conditions.items())

    return min(figures, key=differing)


def elsewhere(number: int) -> str:
    """Return where the conditions of an article's figures are."""
    return f"the article measured other machines: `nodectl bench claims {number}` shows the conditions"


def _is_same(theirs: Condition, ours: object) -> bool:
    if isinstance(theirs, int | float) and isinstance(ours, int | float):
        return math.isclose(theirs, ours, rel_tol=_SAME)
    # NVIDIA A100-SXM4-80GB is an A100 80GB
    return _words(theirs) <= _words(ours)


def _words(value: object) -> set[str]:
    return set(re.findall(r"[a-z0-9+]+", str(value).lower()))


def told_median(values: Sequence[float | None]) -> float | None:
    """Return the median of the values that are told; None if none is."""
    numbers = [value for value in values if value is not None]
    return median(numbers) if numbers else None


def with_spread(measured: Measurement | None) -> str:
    """Return `412 ±1.5 %`: half of the spread to each side."""
    if measured is None:
        return "-"
    return digits(measured.value) + ("" if measured.spread is None else f" ±{50 * measured.spread:.1f} %")


# verdicts on series of pairs
Judge = Callable[[Sequence[Series]], Sequence[Verdict]]


@dataclass(frozen=True, slots=True)
class Ratio:
    """`verdict` is on the pairs of measurements that were taken in turn."""

    verdict: Verdict

    @property
    def value(self) -> float | None:
        """Times as fast; None if it cannot be told."""
        gain = self.verdict.gain_percent
        return None if gain is None else 1 + gain / 100

    @property
    def interval(self) -> tuple[float, float] | None:
        """Return where it lies with 95 %."""
        bounds_percent = self.verdict.interval_percent
        return None if bounds_percent is None else (1 + bounds_percent[0] / 100, 1 + bounds_percent[1] / 100)

    @property
    def is_noise(self) -> bool:
        """It says nothing: its interval covers 1, or comes nearer to it than the baseline's own noise."""
        interval = self.interval
        return self.verdict.verdict is Outcome.NOISE or (interval is not None and interval[0] <= 1 <= interval[1])

    @property
    def text(self) -> str:
        """`2.31 x (2.20 to 2.45)`, `noise (0.91 to 1.12 x)`, `unknown`."""
        value, interval = self.value, self.interval
        if value is None or interval is None:
            return "unknown"
        reach = f"{interval[0]:.2f} to {interval[1]:.2f}"
        return f"noise ({reach} x)" if self.is_noise else f"{value:.2f} x ({reach})"

    @property
    def document(self) -> dict[str, object]:
        """Return it as plain data for JSON."""
        verdict = "noise" if self.is_noise else str(self.verdict.verdict)
        return {"value": self.value, "interval": self.interval, "verdict": verdict, "why": self.verdict.reason}


@dataclass(frozen=True, slots=True)
class Compared:
    """Values of the same rounds: `values[n]` was measured beside `base[n]`; more is faster."""

    label: str
    base_label: str
    probe: str
    unit: str
    values: Sequence[float]
    base: Sequence[float]


def ratios(many: Mapping[str, Compared], judge: Judge) -> dict[str, Ratio]:
    """Return a ratio for each, judged together."""
    verdicts = judge([_series(comparison) for comparison in many.values()])
    return {name: Ratio(verdict) for name, verdict in zip(many, verdicts, strict=True)}


def _series(comparison: Compared) -> Series:
    pairs = tuple(Pair(base, value) for base, value in zip_longest(comparison.base, comparison.values))
    return Series(
        comparison.label, comparison.base_label, comparison.probe, comparison.unit, pairs, subject=comparison.label
    )
