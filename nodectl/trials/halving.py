"""Successive halving: many candidates measured a little, the better part of them more, within a budget of seconds."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from statistics import median

from nodectl.errors import UsageError
from nodectl.trials.verdict import MIN_PAIRS

# of the candidates that one rung leaves, and so much more each is measured in the next
KEEP_ONE_IN = 3
# a winner of many was lucky, too: it is measured afresh, and only that counts
FINAL_PAIRS = 10
# so many are tried at least where there is time, rather than fewer more deeply
_BROAD = KEEP_ONE_IN**2

# one pair of a candidate, by its number, and the baseline: the gain as the logarithm of a ratio; None where it failed
Evaluate = Callable[[int], float | None]


@dataclass(slots=True)
class Standing:
    """A candidate and the gains of its pairs; one that failed is out."""

    candidate: int
    gains: list[float] = field(default_factory=list)
    failed: bool = False

    @property
    def gain(self) -> float:
        """The median gain of its pairs; minus infinity before the first."""
        return median(self.gains) if self.gains else -math.inf


@dataclass(frozen=True, slots=True)
class Search:
    """`standings` best first, `final` the fresh pairs of the first; not `complete` where the budget ended it."""

    standings: tuple[Standing, ...]
    final: tuple[float, ...]
    complete: bool

    @property
    def winner(self) -> int | None:
        """The best candidate; None where none could be measured or none is above the baseline."""
        best = self.standings[0] if self.standings else None
        return best.candidate if best and not best.failed and best.gain > 0 else None


def halve(
    candidates: Sequence[int],
    evaluate: Evaluate,
    budget_s: float,
    clock: Callable[[], float],
    *,
    final_pairs: int = FINAL_PAIRS,
) -> Search:
    """Measure within the budget; candidates come in an order of chance, for those that do not fit are left out."""
    if final_pairs < MIN_PAIRS:
        raise UsageError(f"a verdict needs {MIN_PAIRS} pairs, not {final_pairs}", "raise the number of final pairs")
    return _Halving(candidates, evaluate, budget_s, clock, final_pairs, clock()).run()


def _rungs(count: int, *, deep: bool) -> Iterator[tuple[int, int]]:
    """Yield the rungs after a first pair of each: (how many are kept, how many more pairs each gets).

    A search that is not deep gives each one pair more.
    """
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


@dataclass(slots=True)
class _Halving:
    """One search: its standings, and what it has spent."""

    candidates: Sequence[int]
    evaluate: Evaluate
    budget_s: float
    clock: Callable[[], float]
    final_pairs: int
    start_s: float
    pairs: int = 0
    longest_s: float = 0.0
    standings: list[Standing] = field(default_factory=list)

    def run(self) -> Search:
        alive = self._first_rung()
        complete = len(self.standings) == len(self.candidates)
        deep = self._left_s() >= (_cost(len(alive), deep=True) + self.final_pairs) * self._mean_s()
        for keep, pairs in _rungs(len(alive), deep=deep):
            alive = self._best(alive)[:keep]
            if not self._rung(alive, pairs):
                complete = False
                break
        ranked = self._ranked(alive)
        final: tuple[float, ...] = ()
        if ranked and not ranked[0].failed and ranked[0].gain > 0:
            final = self._final(ranked[0].candidate)
            complete = complete and len(final) == self.final_pairs
        return Search(tuple(ranked), final, complete)

    def _first_rung(self) -> list[Standing]:
        """Measure one pair of each candidate, as long as the budget then still has room for the later rungs."""
        for candidate in self.candidates:
            if self.standings and not self._affordable(len(self.standings)):
                break
            standing = Standing(candidate)
            if not self._measure(standing, reserve=self.final_pairs):
                break
            self.standings.append(standing)
        return [standing for standing in self.standings if not standing.failed]

    def _affordable(self, measured: int) -> bool:
        """Return whether there is time for one more candidate, all later rungs (shallow for a few) and the final."""
        later = _cost(measured + 1, deep=measured >= _BROAD)
        return self._left_s() >= (1 + later + self.final_pairs) * self._mean_s()

    def _rung(self, alive: Sequence[Standing], pairs: int) -> bool:
        """Measure more pairs of each, in turns, so that a drift meets all of them; False where the budget ends it."""
        for _ in range(pairs):
            for standing in alive:
                if not standing.failed and not self._measure(standing, reserve=self.final_pairs):
                    return False
        return True

    def _measure(self, standing: Standing, reserve: int) -> bool:
        """Measure one more pair; False where there is no time for it beside `reserve` pairs."""
        if self.pairs and self._left_s() < self.longest_s + reserve * self._mean_s():
            return False
        before = self.clock()
        gain = self.evaluate(standing.candidate)
        self.longest_s = max(self.longest_s, self.clock() - before)
        self.pairs += 1
        if gain is None or math.isnan(gain):
            standing.failed = True
        else:
            standing.gains.append(gain)
        return True

    def _final(self, candidate: int) -> tuple[float, ...]:
        standing = Standing(candidate)
        for _ in range(self.final_pairs):
            if not self._measure(standing, reserve=0) or standing.failed:
                break
        return tuple(standing.gains)

    def _best(self, alive: Sequence[Standing]) -> list[Standing]:
        return sorted((standing for standing in alive if not standing.failed), key=lambda standing: -standing.gain)

    def _ranked(self, alive: Sequence[Standing]) -> list[Standing]:
        """All candidates, those of the last rung first: one lucky pair counts less than many."""
        last = {standing.candidate for standing in alive}

        def key(standing: Standing) -> tuple[bool, bool, int, float]:
            return standing.failed, standing.candidate not in last, -len(standing.gains), -standing.gain

        return sorted(self.standings, key=key)

    def _left_s(self) -> float:
        return self.budget_s - (self.clock() - self.start_s)

    def _mean_s(self) -> float:
        return (self.clock() - self.start_s) / self.pairs if self.pairs else 0.0
