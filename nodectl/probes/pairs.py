"""Rounds of pairs in which no host is in two pairs, so that no measurement disturbs another."""

import random
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")

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
    return [each for each in rounds if each]


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
