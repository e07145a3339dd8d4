"""Student's t: how far an estimate from few values may be off."""

import math
from statistics import NormalDist


def quantile(probability: float, degrees: int) -> float:
    """The value that a t of so many degrees of freedom stays below with this probability (0.5 to 1).

    Exact for 1 and 2 degrees, else Hill's expansion (1970), good to four digits.
    """
    if not 0.5 <= probability < 1 or degrees < 1:
        raise ValueError(f"no t quantile of {probability} with {degrees} degrees of freedom")
    tail = 2 * (1 - probability)
    if degrees == 1:
        return 1 / math.tan(tail * math.pi / 2)
    if degrees == 2:
        return math.sqrt(2 / (tail * (2 - tail)) - 2)
    z = NormalDist().inv_cdf(probability)
    n = degrees
    terms = (
        z,
        (z**3 + z) / 4 / n,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96 / n**2,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384 / n**3,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160 / n**4,
    )
    return sum(terms)
