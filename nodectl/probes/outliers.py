"""Who is slower than the others of a fleet.

By the median of the others and their own spread, so that one bad host hides neither itself nor another.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median

from nodectl.common.statistics import QUORUM, robust_deviation

# a part that healthy hosts of one kind stay within
TOLERANCE = 0.15
# of the others' own spread (as many standard deviations, had it a bell's shape), where that is wider
_DEVIATIONS = 5.0
# between two hosts, where no spread tells what is usual
_PAIR_TOLERANCE = 0.3


@dataclass(frozen=True, slots=True)
class Slow:
    """A host below the others; `culprit` is False where it cannot be told who is right."""

    value: float
    usual: float
    culprit: bool = True


def slow(values: Mapping[str, float], best: Mapping[str, float]) -> dict[str, Slow]:
    """The hosts that even at their `best` are well below the median of the others; of two that differ much, both."""
    if len(values) < QUORUM:
        return _pair(values)
    found = {}
    for host, value in values.items():
        others = [each for name, each in values.items() if name != host]
        usual = median(others)
        spread = robust_deviation(others, usual)
        if best[host] < usual - max(TOLERANCE * usual, _DEVIATIONS * spread):
            found[host] = Slow(value, usual)
    return found


def _pair(values: Mapping[str, float]) -> dict[str, Slow]:
    if len(values) < 2 or min(values.values()) >= (1 - _PAIR_TOLERANCE) * max(values.values()):
        return {}
    return {
        host: Slow(value, next(each for name, each in values.items() if name != host), culprit=False)
        for host, value in values.items()
    }
