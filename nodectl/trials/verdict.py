"""Better, noise or worse: the paired gain with its 95 % interval, against the noise of the baseline itself.

Gains are taken as logarithms of ratios within a pair, so that what drifts over the trial falls out, and twice as fast
is as far from nothing as half as fast. `docs/tuning.md` has the figures of false verdicts and power.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import NormalDist, fmean, median, median_low

from nodectl.common.statistics import NORMAL_MAD, robust_deviation, student_t
from nodectl.errors import UsageError
from nodectl.model.trial import Series
from nodectl.model.verdict import Outcome, Summary, Verdict
from nodectl.probes.registry import kind_of

_RESAMPLES = 2000


def interval(values: Sequence[float], seed: int = 0) -> tuple[float, float]:
    """Return the 95 % interval of the values' mean by the bootstrap; the same for the same values and seed."""
    count = len(values)
    drawn = random.Random(seed).choices(values, k=count * _RESAMPLES)  # noqa: S311  # chance, not secrets
    means = sorted(sum(drawn[start : start + count]) / count for start in range(0, len(drawn), count))
    # what is cut off at each end so that a percentile interval covers 95 %
    tail = NormalDist().cdf(-student_t(0.975, count - 1) * math.sqrt(count / (count - 1)))
    cut = int(tail * _RESAMPLES)
    return means[cut], means[-1 - cut]


MIN_PAIRS = 5
# below this a difference is not worth a setting, however sure it is
MIN_GAIN_PERCENT = 2.0
# one pair in five may be an outlier, and is drawn in: further from the median than this many deviations, and by more
# than half; less is no stall but may be a second state (clocks, NUMA nodes), which has to count
_OUTLIERS = 5
_DEVIATIONS = 3.0
_STALL = math.log(1.5)
# of any unit; beyond it percentages are no numbers any more
_FASTEST = 1e100
# nine of ten comparisons of the baseline with itself stay within its noise
_NOISE_QUANTILE = 0.95


@dataclass(frozen=True, slots=True)
class Logs:
    """A series as logarithms, more is better: `gains` within pairs, `steps` from one baseline to the next."""

    gains: tuple[float, ...]
    steps: tuple[float, ...]

    @property
    def deviation(self) -> float:
        """How far a gain usually is from the median: by the gains or by the baseline, whichever is further."""
        middle = median(self.gains)
        return max(robust_deviation(self.gains, middle), NORMAL_MAD * median_low(map(abs, self.steps)))

    @property
    def clamped(self) -> tuple[float, ...]:
        """The gains with at most one in five drawn in."""
        return _drawn_in(self.gains, median(self.gains), self.deviation, len(self.gains) // _OUTLIERS)

    @property
    def outliers(self) -> int:
        """How many pairs are far from the others."""
        middle, far = median(self.gains), max(_STALL, _DEVIATIONS * self.deviation)
        return sum(abs(gain - middle) > far for gain in self.gains)

    @property
    def noise(self) -> float:
        """Return what the baseline against itself comes to, over as many pairs."""
        count = len(self.gains)
        # a stalled baseline is in two steps
        steps = _drawn_in(self.steps, 0.0, self.deviation, 2 * (count // _OUTLIERS))
        deviation = math.sqrt(fmean(step**2 for step in steps))
        return student_t(_NOISE_QUANTILE, count - 1) * deviation / math.sqrt(count)


def _drawn_in(values: Sequence[float], middle: float, deviation: float, most: int) -> tuple[float, ...]:
    """Outliers moved to where the others end; of more than `most` the nearer ones stay where they are."""
    ordered = sorted((abs(value - middle) for value in values), reverse=True)
    reach = max(_DEVIATIONS * deviation, ordered[most])
    far = max(_STALL, reach)
    return tuple(
        middle + math.copysign(reach, value - middle) if abs(value - middle) > far else value for value in values
    )


def judge(series: Series, seed: int = 0) -> Verdict:
    """Return the verdict on one series; unknown, with the reason, where fewer than five pairs are complete."""
    count = len(series.complete)
    unknown = Verdict(
        profile=series.profile,
        baseline=series.baseline,
        probe=series.probe,
        subject=series.subject,
        size_bytes=series.size_bytes,
        unit=series.unit,
        verdict=Outcome.UNKNOWN,
        pairs=count,
        failed_baseline=sum(pair.baseline is None for pair in series.pairs),
        failed_candidate=sum(pair.candidate is None for pair in series.pairs),
        reason=f"too few pairs: {count} of {len(series.pairs)} are complete, and {MIN_PAIRS} are needed",
    )
    if count < MIN_PAIRS:
        return unknown
    logs = logarithms(series)
    clamped = logs.clamped
    low, high = (percent(series, end) for end in interval(clamped, seed))
    noise = 100 * math.expm1(logs.noise)
    needed = max(MIN_GAIN_PERCENT, noise)
    reach = f"{low:+.1f} to {high:+.1f} %"
    if low > needed:
        outcome, reason = Outcome.BETTER, f"all of {reach} is above {needed:.1f} %"
    elif high < -needed:
        outcome, reason = Outcome.WORSE, f"all of {reach} is below -{needed:.1f} %"
    else:
        outcome, reason = Outcome.NOISE, f"{reach} is not beyond {needed:.1f} %"
    return replace(
        unknown,
        verdict=outcome,
        gain_percent=percent(series, fmean(clamped)),
        noise_percent=noise,
        interval_percent=(low, high),
        outliers=logs.outliers,
        reason=reason,
    )


def logarithms(series: Series) -> Logs:
    """Return the complete pairs as logarithms.

    UsageError for a unit of which it is not known whether more is better.
    """
    lower = lower_is_better(series)
    if lower is None:
        raise UsageError(
            f"{series.probe}: the unit {series.unit!r} is unknown: neither more nor less of it is known to be better",
            "measure in a rate (GB/s, Gbit/s, TFLOP/s, samples/s) or a time (s, ms, us), or let the probe declare it",
        )
    for value in (value for pair in series.pairs for value in (pair.baseline, pair.candidate)):
        if value is not None and not 1 / _FASTEST < value < _FASTEST:
            raise UsageError(
                f"{series.probe}: {value!r} {series.unit} in the series is no speed",
                "write null for a measurement that failed, not 0",
            )
    sign = -1 if lower else 1
    baselines = [math.log(pair.baseline) for pair in series.pairs if pair.baseline is not None]
    return Logs(
        gains=tuple(sign * math.log(candidate / baseline) for baseline, candidate in series.complete),
        steps=tuple(after - before for before, after in pairwise(baselines)),
    )


def lower_is_better(series: Series) -> bool | None:
    """Return whether less is better, as the probe declares its unit, else by the unit; None if neither says."""
    return kind_of(series.probe).lower_is_better(series.unit)


def percent(series: Series, gain: float) -> float:
    """Return a gain of logarithms in percent of the baseline: more of a rate, less of a time."""
    return -100 * math.expm1(-gain) if lower_is_better(series) else 100 * math.expm1(gain)


SPEED, JOULE = "speed", "joule"


def decides(unit: str, judge_by: str) -> bool:
    """Return whether what is measured in this unit decides: by joule energy alone, by speed all but energy."""
    return unit.startswith("J/") == (judge_by == JOULE)


def summarise(profile: str, verdicts: Sequence[Verdict], judge_by: str = SPEED) -> Summary:
    """Worse where anything is worse; unknown where anything could not be told; better where anything is.

    Of those that decide. A path that could not be judged makes nothing unknown if the fleet's mean was.
    """
    verdicts = [verdict for verdict in verdicts if decides(verdict.unit, judge_by)]
    regressions = tuple(verdict for verdict in verdicts if verdict.is_regression)
    wins = tuple(verdict for verdict in verdicts if verdict.verdict is Outcome.BETTER)
    judged_means = {verdict.kind for verdict in verdicts if verdict.is_mean and verdict.verdict is not Outcome.UNKNOWN}
    undecided = tuple(
        verdict
        for verdict in verdicts
        if verdict.verdict is Outcome.UNKNOWN and (verdict.is_mean or verdict.kind not in judged_means)
    )
    if regressions:
        outcome = Outcome.WORSE
    elif undecided or not verdicts:
        outcome = Outcome.UNKNOWN
    else:
        outcome = Outcome.BETTER if wins else Outcome.NOISE
    return Summary(profile, outcome, wins, regressions, undecided)
