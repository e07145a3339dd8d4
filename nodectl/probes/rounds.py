"""The order of a fleet's rounds: sampled ones, and the same switch before another.

As in `pairs`, no host is in two pairs of a round.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import TypeVar

from nodectl.probes.base import ProbeOptions
from nodectl.probes.endpoints import Endpoint

# up to here all pairs are measured by default: 15 rounds
ALL_PAIRS_LIMIT = 16

MODES = ("auto", "all", "ring", "first", "sample")


def rounds_for(mode: str, items: Sequence[T]) -> list[list[tuple[T, T]]]:
    """The rounds of a mode; `auto` is `all` up to ALL_PAIRS_LIMIT hosts, else `sample`."""
    if mode == "auto":
        mode = resolved(mode, len(items))
    if mode == "first":
        return [[(items[0], items[1])]] if len(items) > 1 else []
    if mode == "ring":
        return ring(items)
    return sample(items) if mode == "sample" else all_pairs(items)


def resolved(mode: str, count: int) -> str:
    """What `auto` means for so many hosts."""
    if mode != "auto":
        return mode
    return "all" if count <= ALL_PAIRS_LIMIT else "sample"


def all_pairs(items: Sequence[T]) -> list[list[tuple[T, T]]]:
    """Every pair once, by the circle method: n-1 rounds for an even n; for an odd one n, a host resting in each."""
    circle: list[T | None] = [*items, *([None] if len(items) % 2 else [])]
    rounds = []
    for _ in range(len(circle) - 1):
        facing = zip(circle[: len(circle) // 2], reversed(circle[len(circle) // 2 :]), strict=True)
        rounds.append([(a, b) for a, b in facing if a is not None and b is not None])
        circle = [circle[0], circle[-1], *circle[1:-1]]
    return [pairs for pairs in rounds if pairs]


def ring(items: Sequence[T]) -> list[list[tuple[T, T]]]:
    """Each host with the next, the last with the first: two rounds, a third where the ring is odd."""
    if len(items) < 3:
        return all_pairs(items)
    edges = [(items[i], items[(i + 1) % len(items)]) for i in range(len(items))]
    last = [] if len(edges) % 2 == 0 else [edges.pop()]
    return [each for each in (edges[::2], edges[1::2], last) if each]


def sample(items: Sequence[T], seed: int = 0) -> list[list[tuple[T, T]]]:
    """About log2(n) of the rounds of all pairs, over shuffled hosts: every host meets that many others.

    The same hosts give the same sample, so that two runs can be compared.
    """
    shuffled = list(items)
    random.Random(seed).shuffle(shuffled)  # noqa: S311 - a sample, not a secret
    rounds = all_pairs(shuffled)
    return rounds[: max(1, (len(items) - 1).bit_length())]


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
        found[name] = ", ".join(sorted({str(name) for name in names}))
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


def planned_rounds(
    ready: Sequence[Endpoint], switches: Mapping[str, str], options: ProbeOptions
) -> tuple[str, list[list[tuple[Endpoint, Endpoint]]]]:
    """What is measured, as a word for the operator and as rounds; near pairs first where the switches are known."""
    if options.rounds is not None:
        return f"sample of {options.rounds}", sampled(ready, options.rounds)
    mode = resolved(options.pairs, len(ready))
    if mode == "all" and len(set(switches.values())) > 1:
        return "all, same switch first", near_before_far(ready, lambda each: switches[each.host.name])
    return mode, rounds_for(mode, ready)
