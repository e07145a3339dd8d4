"""Finds who is to blame where a large group fails, though all pairs pass: by halves, or by leaving parts out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

# whether each of these groups fails; groups of one call have no host in common and can run at once
Fails = Callable[[Sequence[Sequence[str]]], Sequence[bool]]
_PARTS = 4


@dataclass(frozen=True, slots=True)
class Isolation:
    """`culprits` make each group fail that they are in; none where `only_together`: the number alone matters.

    `smallest` is the smallest group known to fail, `calls` and `tests` what it took.
    """

    culprits: tuple[str, ...]
    smallest: tuple[str, ...]
    only_together: bool
    calls: int
    tests: int


def isolate(hosts: Sequence[str], fails: Fails, least: int = 2) -> Isolation:
    """Who makes this group fail, in about 2 log2(n) calls; `hosts` must fail as a whole.

    No group smaller than `least` is tested: a collective needs two. A host found in a group of the least size is
    tested with hosts of groups that passed.
    """
    return _Search(tuple(hosts), fails, least).run()


class _Search:
    def __init__(self, hosts: tuple[str, ...], fails: Fails, least: int) -> None:
        self.hosts, self.fails, self.least = hosts, fails, least
        self.calls = self.tests = 0
        self.smallest = hosts
        self.good: list[str] = []

    def run(self) -> Isolation:
        """Halves first; where both pass, the fault needs a large group, and parts are left out of it."""
        culprits: list[str] = []
        failing = [self.hosts]
        while failing:
            groups = [half for group in failing for half in _halves(group, self.least)]
            single = [group for group in failing if not _halves(group, self.least)]
            for group in single:
                culprits += self._single_out(group)
            if not groups:
                break
            told = self._ask(groups)
            failing = [group for group, failed in zip(groups, told, strict=True) if failed]
            self.good += [name for group, failed in zip(groups, told, strict=True) if not failed for name in group]
            if not failing and not culprits:
                return self._left_out()
        return self._done(culprits)

    def _single_out(self, group: Sequence[str]) -> list[str]:
        """Of a failing group that is too small to halve, those that fail with good hosts, too."""
        fresh = [name for name in self.good if name not in group]
        if len(group) == 1:
            return list(group)
        if len(fresh) < self.least - 1:
            return list(group)
        found = []
        for name in group:
            if self._ask([(name, *fresh[: self.least - 1])])[0]:
                found.append(name)
        # it fails in this company alone
        return found or list(group)

    def _left_out(self) -> Isolation:
        """The whole fails, its halves pass: narrow down the part without which it passes."""
        suspects = self.hosts
        while len(suspects) > 1:
            parts = _parts(suspects, min(_PARTS, len(suspects)))
            without = [tuple(name for name in self.hosts if name not in part) for part in parts]
            passing = [part for part, rest in zip(parts, without, strict=True) if not self._ask([rest])[0]]
            if len(passing) != 1:
                # it passes without any part, or fails without any: no one is in all that fails
                return self._done([], only_together=len(passing) > 1)
            (suspects,) = passing
        return self._done(list(suspects))

    def _ask(self, groups: Sequence[Sequence[str]]) -> list[bool]:
        self.calls += 1
        self.tests += len(groups)
        told = list(self.fails(groups))
        for group, failed in zip(groups, told, strict=True):
            if failed and len(group) < len(self.smallest):
                self.smallest = tuple(group)
        return told

    def _done(self, culprits: Sequence[str], *, only_together: bool = False) -> Isolation:
        return Isolation(tuple(dict.fromkeys(culprits)), self.smallest, only_together, self.calls, self.tests)


def _halves(group: Sequence[str], least: int) -> list[tuple[str, ...]]:
    """Two halves of at least that size; none where it is too small for that."""
    middle = len(group) // 2
    return [tuple(group[:middle]), tuple(group[middle:])] if middle >= least else []


def _parts(group: Sequence[str], count: int) -> list[tuple[str, ...]]:
    edges = [round(number * len(group) / count) for number in range(count + 1)]
    return [tuple(group[a:b]) for a, b in pairwise(edges)]
