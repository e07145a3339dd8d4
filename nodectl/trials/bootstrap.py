"""A 95 % interval of a mean from few values: the expanded percentile bootstrap.

The percentile interval of n values is too narrow by about sqrt((n - 1) / n), and knows nothing of Student's t. Taking
its quantiles further out by just that is Hesterberg's remedy (What Teachers Should Know About the Bootstrap, 2015).
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from functools import lru_cache
from itertools import combinations_with_replacement
from statistics import NormalDist

from nodectl.common.statistics import student_t

RESAMPLES = 2000
# up to here all resamples there are fit into a table, and nothing is left to chance
_EXACT = 6
_NORMAL = NormalDist()


def interval(values: Sequence[float], seed: int = 0) -> tuple[float, float]:
    """Return the 95 % interval of the values' mean; the same for the same values and seed."""
    tail = expanded_tail(len(values))
    if len(values) <= _EXACT:
        means = _all_means(values)
        return _quantile(means, tail), -_quantile([(-mean, weight) for mean, weight in reversed(means)], tail)
    means_drawn = resampled_means(values, random.Random(seed))  # noqa: S311  # chance, not secrets
    cut = int(tail * len(means_drawn))
    return means_drawn[cut], means_drawn[-1 - cut]


def resampled_means(values: Sequence[float], chance: random.Random) -> list[float]:
    """Return the means of RESAMPLES draws with replacement, ascending."""
    count = len(values)
    drawn = chance.choices(values, k=count * RESAMPLES)
    return sorted(sum(drawn[start : start + count]) / count for start in range(0, len(drawn), count))


def expanded_tail(count: int) -> float:
    """Return what is cut off at each end so that a percentile interval covers 95 %."""
    return _NORMAL.cdf(-student_t(0.975, count - 1) * math.sqrt(count / (count - 1)))


@lru_cache(maxsize=_EXACT)
def _multisets(count: int) -> tuple[tuple[tuple[int, ...], float], ...]:
    """Every way to draw `count` of `count` places, as how often each is drawn, with its probability."""
    draws = []
    for places in combinations_with_replacement(range(count), count):
        times = tuple(places.count(place) for place in range(count))
        ways = math.factorial(count) // math.prod(map(math.factorial, times))
        draws.append((times, ways / count**count))
    return tuple(draws)


def _all_means(values: Sequence[float]) -> list[tuple[float, float]]:
    return sorted(
        (sum(time * value for time, value in zip(times, values, strict=True)) / len(values), weight)
        for times, weight in _multisets(len(values))
    )


def _quantile(weighted: Sequence[tuple[float, float]], part: float) -> float:
    passed = 0.0
    for value, weight in weighted:
        passed += weight
        if passed >= part:
            return value
    return weighted[-1][0]
