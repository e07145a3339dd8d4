"""Who differs from most: the one rule by which hosts, and their parts, are held against their siblings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Mapping
from statistics import median_low
from typing import TypeVar

Who = TypeVar("Who", bound=Hashable)


def odd_ones(values: Mapping[Who, str]) -> tuple[str, frozenset[Who]]:
    """Return the value of the majority and who has another one; without a majority, "" and everybody."""
    counts = Counter(values.values()).most_common()
    if len(counts) < 2:
        return (counts[0][0] if counts else ""), frozenset()
    value, count = counts[0]
    if 2 * count <= len(values):
        return "", frozenset(values)
    return value, frozenset(who for who, other in values.items() if other != value)


def far_above(least: float, factor: float, unit: str) -> Callable[[Mapping[Who, str]], tuple[str, frozenset[Who]]]:
    """Return a rule for numbers before a blank and `unit`: odd is more than `least`, and `factor` times the median."""

    def rule(values: Mapping[Who, str]) -> tuple[str, frozenset[Who]]:
        numbers = {who: float(text.split()[0]) for who, text in values.items()}
        most = max(least, factor * median_low(numbers.values())) if numbers else least
        return f"{most:g} {unit} or less", frozenset(who for who, number in numbers.items() if number > most)

    return rule
