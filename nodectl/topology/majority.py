"""What most of a fleet says, so that whoever differs can be named."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping
from typing import TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V", bound=Hashable)

# below this nobody can say who is right
QUORUM = 3


def majority(values: Mapping[K, V]) -> V | None:
    """The value that more than half have; None where there is none, or fewer than QUORUM are compared."""
    if len(values) < QUORUM:
        return None
    value, count = Counter(values.values()).most_common(1)[0]
    return value if 2 * count > len(values) else None


def differing(values: Mapping[K, V]) -> dict[K, V]:
    """Who differs from the majority; all of them where they differ and there is no majority."""
    usual = majority(values)
    if usual is None:
        return dict(values) if len(set(values.values())) > 1 else {}
    return {key: value for key, value in values.items() if value != usual}
