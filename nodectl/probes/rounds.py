"""The order of a fleet's rounds: sampled ones, and the same switch before another.

As in `pairs`, no host is in two pairs of a round.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import TypeVar

from nodectl.probes.pairs import all_pairs

T = TypeVar("T")
Rounds = list[list[tuple[T, T]]]


def sampled(items: Sequence[T], count: int, seed: int = 0) -> Rounds[T]:
    """So many rounds of all pairs, drawn by chance over shuffled hosts: each meets other partners in each round.

    The same seed gives the same rounds; more rounds than there are give all pairs.
    """
    draw = random.Random(seed)  # noqa: S311 - a sample, not a secret
    shuffled = list(items)
    draw.shuffle(shuffled)
    if count >= len(items) - 1 + len(items) % 2:
        return all_pairs(shuffled)
    # the circle method's rounds of these numbers alone: of 1,000 hosts there are half a million pairs
    seats: list[T | None] = [*shuffled, *([None] if len(shuffled) % 2 else [])]
    first, others = seats[0], seats[1:]
    half = (len(others) + 1) // 2
    rounds = []
    for turn in sorted(draw.sample(range(len(others)), count)):
        circle = [first, *others[len(others) - turn :], *others[: len(others) - turn]]
        facing = zip(circle[:half], reversed(circle[half:]), strict=True)
        rounds.append([(a, b) for a, b in facing if a is not None and b is not None])
    return rounds


def near_before_far(items: Sequence[T], switch_of: Callable[[T], Hashable]) -> Rounds[T]:
    """Every pair once: first those below one switch, on all switches at once, then those of two switches.

    With switches of equal and even size these are n - 1 rounds, as without any order.
    """
    switches: dict[Hashable, list[T]] = {}
    for item in items:
        switches.setdefault(switch_of(item), []).append(item)
    groups = list(switches.values())
    rounds = _merged(all_pairs(group) for group in groups)
    for meeting in all_pairs(range(len(groups))):
        rounds += _merged(_between(groups[a], groups[b]) for a, b in meeting)
    return rounds


def switch_names(variables: Mapping[str, Mapping[str, object]]) -> dict[str, str]:
    """The one switch beside each host, by its variable nodectl_switch; nothing unless all hosts name one.

    A host with several switches is beside the set of them.
    """
    found = {}
    for name, given in variables.items():
        said = given.get("nodectl_switch")
        if isinstance(said, Mapping):
            said = list(said.values())
        names = [said] if isinstance(said, str) else list(said) if isinstance(said, list | tuple) else []
        if not names:
            return {}
        found[name] = ", ".join(sorted({str(each) for each in names}))
    return found


def _between(first: Sequence[T], second: Sequence[T]) -> Rounds[T]:
    """Each of the first with each of the second, in as many rounds as the larger side has hosts."""
    small, large = sorted((first, second), key=len)
    return [
        [(each, large[(place + shift) % len(large)]) for place, each in enumerate(small)] for shift in range(len(large))
    ]


def _merged(plans: Iterator[Rounds[T]]) -> Rounds[T]:
    """Plans of different hosts side by side."""
    return [[pair for part in parts if part for pair in part] for parts in zip_longest(*plans)]
