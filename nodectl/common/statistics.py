"""Robust spread and Student's t: the figures that every comparison of measurements needs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache
from statistics import median

# the standard deviation of normally distributed values is so many times their median absolute deviation
NORMAL_MAD = 1.4826
# of fewer that differ nobody can say who is right
QUORUM = 3


def robust_deviation(values: Iterable[float], center: float = 0.0) -> float:
    """Estimate the standard deviation around `center` by the median distance: outliers hardly move it."""
    return NORMAL_MAD * median(abs(value - center) for value in values)


@lru_cache(maxsize=1024)
def student_t(probability: float, degrees: int) -> float:
    """Return the quantile of Student's t: a value of so many degrees of freedom is below it with this probability."""
    if not 0 < probability < 1 or degrees < 1:
        raise ValueError(f"there is no t quantile of {probability} with {degrees} degrees of freedom")
    # not at the top: it takes longer to import than most commands run, and scipy.stats takes three times as long
    from scipy.special import stdtrit

    return float(stdtrit(degrees, probability))


def student_p(t: float, degrees: int) -> float:
    """How often Student's t of so many degrees of freedom is further from 0, on either side."""
    from scipy.special import stdtr

    return float(2 * stdtr(degrees, -abs(t)))


def holm(p_values: Sequence[float]) -> tuple[float, ...]:
    """Correct p-values for their number (Holm 1979): all below alpha are right, but for a chance of alpha."""
    adjusted, largest = [0.0] * len(p_values), 0.0
    for place, index in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        largest = max(largest, min(1.0, (len(p_values) - place) * p_values[index]))
        adjusted[index] = largest
    return tuple(adjusted)


def more_often(failed: int, count: int, other_failed: int, other_count: int) -> float:
    """Fisher's exact test: how likely so many failures, or more, are where both fail alike."""
    if failed * other_count <= other_failed * count:
        return 1.0
    from scipy.stats import fisher_exact

    table = [[failed, count - failed], [other_failed, other_count - other_failed]]
    return float(fisher_exact(table, alternative="greater").pvalue)


def more_in_pairs(differences: Sequence[int]) -> float:
    """Return the p-value of the exact sign-flip test: a sum as high where each difference could be the other way.

    What fails together in one turn is one difference, however much it is.
    """
    ways = Counter({0: 1})
    for difference in differences:
        flipped: Counter[int] = Counter()
        for total, count in ways.items():
            flipped[total + difference] += count
            flipped[total - difference] += count
        ways = flipped
    least = sum(differences)
    return sum(count for total, count in ways.items() if total >= least) / ways.total()
