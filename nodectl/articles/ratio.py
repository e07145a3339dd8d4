"""How many times as fast one thing is as another, with its interval and its verdict, by the rules of trials."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from nodectl.model.trial import Pair, Series
from nodectl.model.verdict import Outcome, Verdict

# verdicts on series of pairs
Judge = Callable[[Sequence[Series]], Sequence[Verdict]]
# columns of a table for other programs, as `cells_of` fills them
RATIO_HEADER = ("ratio_low", "ratio_high", "ratio_verdict")


@dataclass(frozen=True, slots=True)
class Ratio:
    """`verdict` is on the pairs of measurements that were taken in turn."""

    verdict: Verdict

    @property
    def value(self) -> float | None:
        """Times as fast; None where it cannot be told."""
        gain = self.verdict.gain_percent
        return None if gain is None else 1 + gain / 100

    @property
    def interval(self) -> tuple[float, float] | None:
        """Return where it lies with 95 %."""
        known = self.verdict.interval_percent
        return None if known is None else (1 + known[0] / 100, 1 + known[1] / 100)

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


def cells_of(ratio: Ratio | None) -> list[object]:
    """Return it as the columns of `RATIO_HEADER`; nothing of what is no ratio."""
    if ratio is None:
        return [None] * len(RATIO_HEADER)
    low, high = ratio.interval or (None, None)
    return [low, high, ratio.document["verdict"]]


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
    verdicts = judge([_series(each) for each in many.values()])
    return {name: Ratio(verdict) for name, verdict in zip(many, verdicts, strict=True)}


def _series(each: Compared) -> Series:
    pairs = tuple(Pair(base, value) for base, value in zip_longest(each.base, each.values))
    return Series(each.label, each.base_label, each.probe, each.unit, pairs, subject=each.label)
