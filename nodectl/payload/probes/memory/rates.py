"""What a repetition came to: as fast as it went on the whole, and as fast as each pass over the arrays was."""

from statistics import median
from typing import List, NamedTuple, Sequence

# as many passes STREAM takes the best of
BEST_OF = 10


class Rates(NamedTuple):
    """In GB/s; `passes` is empty where single passes are not timed."""

    sustained: float
    passes: List[float]


def best_of_ten(repetitions: Sequence[Rates]) -> float:
    """The best of ten passes that lie far apart; of more passes the median of such tens, so that more are no better.

    Without passes the best repetition.
    """
    passes = [rate for repetition in repetitions for rate in repetition.passes]
    if not passes:
        return sustained(repetitions)
    tens = max(1, len(passes) // BEST_OF)
    return median(max(passes[first::tens]) for first in range(tens))


def sustained(repetitions: Sequence[Rates]) -> float:
    """The best repetition: something else may have run during the others."""
    return max(repetition.sustained for repetition in repetitions)
