"""Robust spread and Student's t: the figures that every comparison of measurements needs."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from statistics import median

# the standard deviation of normally distributed values is so many times their median absolute deviation
NORMAL_MAD = 1.4826
# of fewer that differ nobody can say who is right
QUORUM = 3


def robust_deviation(values: Iterable[float], center: float = 0.0) -> float:
    """The standard deviation of values around `center`, estimated by the median distance: outliers hardly move it."""
    return NORMAL_MAD * median(abs(value - center) for value in values)


@lru_cache(maxsize=1024)
def student_t(probability: float, degrees: int) -> float:
    """The quantile of Student's t: what a value of so many degrees of freedom stays below with this probability."""
    if not 0 < probability < 1 or degrees < 1:
        raise ValueError(f"no t quantile of {probability} with {degrees} degrees of freedom")
    # not at the top: it takes longer to import than most commands run, and scipy.stats takes three times as long
    from scipy.special import stdtrit

    return float(stdtrit(degrees, probability))
