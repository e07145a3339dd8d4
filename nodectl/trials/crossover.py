"""Sizes of messages at which one choice overtakes another, with their interval; and all that a trial's series say."""

from __future__ import annotations

import math
import random
from collections import defaultdict
from collections.abc import Iterable, Sequence
from statistics import fmean

from nodectl.errors import UsageError
from nodectl.model.trial import Series
from nodectl.model.verdict import Crossover, Outcome, Summary, Verdict
from nodectl.trials.families import judge_all
from nodectl.trials.verdict import MIN_PAIRS, RESAMPLES, SPEED, logarithms, summarise

_TAIL = 0.025


def crossover(many: Sequence[Series]) -> Crossover | None:
    """Return the crossover of one candidate against one baseline over sizes; None where not each wins somewhere.

    Each side needs a verdict of its own, the one at smaller sizes than the other: noise never makes a crossover.
    """
    sized = _by_size(many)
    verdicts = [verdict.verdict for verdict in judge_all(sized)]
    better = [index for index, crossing in enumerate(verdicts) if crossing is Outcome.BETTER]
    worse = [index for index, crossing in enumerate(verdicts) if crossing is Outcome.WORSE]
    if not better or not worse:
        return None
    candidate_first = max(better) < min(worse)
    if not candidate_first and max(worse) > min(better):
        return None  # it wins, loses and wins again: no single size divides them
    gains = [logarithms(series).clamped for series in sized]
    sizes = [math.log2(series.size_bytes or 1) for series in sized]
    sign = 1.0 if candidate_first else -1.0
    crossing = _crossing(sizes, [sign * fmean(gain) for gain in gains])
    chance = random.Random(0)  # noqa: S311  # chance, not secrets
    drawn = sorted(
        _crossing(sizes, [sign * fmean(chance.choices(gain, k=len(gain))) for gain in gains]) for _ in range(RESAMPLES)
    )
    cut = int(_TAIL * RESAMPLES)
    names = (sized[0].profile, sized[0].baseline) if candidate_first else (sized[0].baseline, sized[0].profile)
    ends = (_bytes(drawn[cut]), _bytes(drawn[-1 - cut]))
    return Crossover(*names, _bytes(crossing), ends, sized[0].probe, sized[0].subject)


def crossovers(many: Iterable[Series]) -> tuple[Crossover, ...]:
    """Return the crossovers among series of the same thing at several sizes."""
    groups: dict[tuple[str, ...], list[Series]] = defaultdict(list)
    for series in many:
        if series.size_bytes is not None:
            groups[series.profile, series.baseline, series.probe, series.subject, series.unit].append(series)
    candidates = (crossover(sized) for sized in groups.values() if len(sized) > 1)
    return tuple(crossing for crossing in candidates if crossing is not None)


def _by_size(many: Sequence[Series]) -> list[Series]:
    kinds = {(series.profile, series.baseline, series.probe, series.subject, series.unit) for series in many}
    if len(kinds) > 1:
        raise UsageError("a crossover needs series of one probe at several sizes", "give the series of one subject")
    sized = [series for series in many if series.size_bytes and len(series.complete) >= MIN_PAIRS]
    return sorted(sized, key=lambda series: series.size_bytes or 0)


def _crossing(sizes: Sequence[float], gains: Sequence[float]) -> float:
    """Return the size (log2) at which gains fall below 0.

    At the best split, by a straight line between its two sizes.
    """
    splits = range(len(sizes) + 1)
    best = max(splits, key=lambda split: sum(gains[:split]) - sum(gains[split:]))
    if best in (0, len(sizes)):
        return sizes[0] if best == 0 else sizes[-1]
    left, right = gains[best - 1], gains[best]
    part = left / (left - right) if left > 0 > right else 0.5
    return sizes[best - 1] + part * (sizes[best] - sizes[best - 1])


def _bytes(size_log2: float) -> int:
    return round(2**size_log2)


def judged(
    series: Sequence[Series], judge_by: str = SPEED
) -> tuple[tuple[Verdict, ...], tuple[Summary, ...], tuple[Crossover, ...]]:
    """Verdicts in the order of the series, and summaries in that in which profiles are first seen."""
    verdicts = judge_all(series)
    profiles = dict.fromkeys(verdict.profile for verdict in verdicts)
    summaries = tuple(
        summarise(name, [verdict for verdict in verdicts if verdict.profile == name], judge_by) for name in profiles
    )
    return verdicts, summaries, crossovers(series)
