"""Successive halving: many candidates measured a little, the better part of them more, within a budget of seconds."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Generic, TypeVar

from nodectl.errors import UsageError
from nodectl.trials.verdict import MIN_PAIRS

# of the candidates that one rung leaves, and so much more each is measured in the next
KEEP_ONE_IN = 3
# a winner of many was lucky, too: it is measured afresh, and only that counts
FINAL_PAIRS = 10
# so many are tried at least where there is time, rather than fewer more deeply
_BROAD = KEEP_ONE_IN**2

Point = TypeVar("Point")
# one pair of a candidate and the baseline: the gain as the logarithm of a ratio; None where it failed
Evaluate = Callable[[Point], float | None]
Clock = Callable[[], float]


@dataclass
class Standing(Generic[Point]):
    """A candidate and the gains of its pairs; one that failed is out."""

    candidate: Point
    gains: list[float] = field(default_factory=list)
    failed: bool = False

    @property
    def gain(self) -> float:
        """The median of its pairs."""
        return median(self.gains) if self.gains else -math.inf


@dataclass(frozen=True, slots=True)
class Search(Generic[Point]):
    """`standings` best first, `final` the fresh pairs of the first; not `complete` where the budget ended it."""

    standings: tuple[Standing[Point], ...]
    final: tuple[float, ...]
    spent_s: float
    complete: bool

    @property
    def winner(self) -> Point | None:
        """The best candidate; None where none could be measured or none is above the baseline."""
        best = self.standings[0] if self.standings else None
        return best.candidate if best and not best.failed and best.gain > 0 else None


def halve(
    candidates: Sequence[Point],
    evaluate: Evaluate[Point],
    budget_s: float,
    clock: Clock,
    *,
    final_pairs: int = FINAL_PAIRS,
) -> Search[Point]:
    """Measure within the budget; candidates come in an order of chance, for those that do not fit are left out."""
    if final_pairs < MIN_PAIRS:
        raise UsageError(f"a verdict needs {MIN_PAIRS} pairs, not {final_pairs}", "raise the number of final pairs")
    return _Halving(candidates, evaluate, budget_s, clock, final_pairs).run()


def _rungs(count: int, *, deep: bool) -> Iterator[tuple[int, int]]:
    """After a first pair of each: how many are kept, and how many more pairs each of those gets; one, if not deep."""
    more = KEEP_ONE_IN if deep else 1
    if 1 < count <= KEEP_ONE_IN:
        yield count, more
    pairs = more
    while count > KEEP_ONE_IN:
        count = math.ceil(count / KEEP_ONE_IN)
        yield count, pairs
        pairs *= more


def _cost(count: int, *, deep: bool) -> int:
    return sum(keep * pairs for keep, pairs in _rungs(count, deep=deep))


class _Halving(Generic[Point]):
    """One search: its standings, and what it has spent."""

    def __init__(
        self, candidates: Sequence[Point], evaluate: Evaluate[Point], budget_s: float, clock: Clock, final_pairs: int
    ) -> None:
        self._waiting = list(candidates)
        self._evaluate = evaluate
        self._budget_s = budget_s
        self._clock = clock
        self._final_pairs = final_pairs
        self._start = clock()
        self._pairs = 0
        self._longest_s = 0.0
        self._all: list[Standing[Point]] = []

    def run(self) -> Search[Point]:
        alive = self._first_rung()
        complete = len(self._all) == len(self._waiting)
        deep = self._left_s() >= (_cost(len(alive), deep=True) + self._final_pairs) * self._mean_s()
        for keep, pairs in _rungs(len(alive), deep=deep):
            alive = self._best(alive)[:keep]
            if not self._rung(alive, pairs):
                complete = False
                break
        ranked = self._ranked(alive)
        final: tuple[float, ...] = ()
        if ranked and not ranked[0].failed and ranked[0].gain > 0:
            final = self._final(ranked[0].candidate)
            complete = complete and len(final) == self._final_pairs
        return Search(tuple(ranked), final, self._clock() - self._start, complete)

    def _first_rung(self) -> list[Standing[Point]]:
        """One pair of each, of as many as leave the budget enough for the rungs after it."""
        for candidate in self._waiting:
            if self._all and not self._affordable(len(self._all)):
                break
            standing = Standing(candidate)
            if not self._measure(standing, reserve=self._final_pairs):
                break
            self._all.append(standing)
        return [standing for standing in self._all if not standing.failed]

    def _affordable(self, measured: int) -> bool:
        """There is time for one more candidate's pair, all later rungs and the final; for a few, for shallow ones."""
        later = _cost(measured + 1, deep=measured >= _BROAD)
        return self._left_s() >= (1 + later + self._final_pairs) * self._mean_s()

    def _rung(self, alive: Sequence[Standing[Point]], pairs: int) -> bool:
        """In turns, so that what drifts meets all of them; False where the budget ends it."""
        for _ in range(pairs):
            for standing in alive:
                if not standing.failed and not self._measure(standing, reserve=self._final_pairs):
                    return False
        return True

    def _measure(self, standing: Standing[Point], reserve: int) -> bool:
        """One more pair; False where there is no time for it beside the reserve."""
        if self._pairs and self._left_s() < self._longest_s + reserve * self._mean_s():
            return False
        before = self._clock()
        gain = self._evaluate(standing.candidate)
        self._longest_s = max(self._longest_s, self._clock() - before)
        self._pairs += 1
        if gain is None or math.isnan(gain):
            standing.failed = True
        else:
            standing.gains.append(gain)
        return True

    def _final(self, candidate: Point) -> tuple[float, ...]:
        standing = Standing(candidate)
        for _ in range(self._final_pairs):
            if not self._measure(standing, reserve=0) or standing.failed:
                break
        return tuple(standing.gains)

    def _best(self, alive: Sequence[Standing[Point]]) -> list[Standing[Point]]:
        return sorted((candidate for candidate in alive if not candidate.failed), key=lambda candidate: -candidate.gain)

    def _ranked(self, alive: Sequence[Standing[Point]]) -> list[Standing[Point]]:
        """Those of the last rung first: one lucky pair is no match for many."""
        last = {id(candidate) for candidate in alive}
        return sorted(
            self._all,
            key=lambda candidate: (candidate.failed, id(candidate) not in last, -len(candidate.gains), -candidate.gain),
        )

    def _left_s(self) -> float:
        return self._budget_s - (self._clock() - self._start)

    def _mean_s(self) -> float:
        return (self._clock() - self._start) / self._pairs if self._pairs else 0.0
