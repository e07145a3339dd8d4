"""The course of a trial: turns in an order that no drift can favour, as far as the time goes."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from statistics import fmean, median

from nodectl.common.counting import counted
from nodectl.errors import UsageError
from nodectl.model.trial import Ranked, Side
from nodectl.probes.schedule import Pace
from nodectl.trials.series import Taken, Turn, schedule, series_of
from nodectl.trials.turns import Turns
from nodectl.trials.verdict import MIN_PAIRS, SPEED, decides, lower_is_better

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


# the baseline's number; candidates count from 1
BASELINE = 0
# a candidate's number, and the pairs of it that were measured after it was chosen
Fresh = tuple[int, tuple[Taken, ...]]
# pairs in a block: A B B A
_BLOCK = 2


@dataclass(frozen=True, slots=True)
class Ending:
    """`reason`: why it is not what was asked for; `trimmed`: what was given up for the budget, and can be spared."""

    reason: str = ""
    trimmed: str = ""


@dataclass(slots=True)
class Course:
    """The turns of candidates, which count from 1, and their baseline; `keep` is called after each.

    `taken` has each candidate's turns by its number, with those of the baseline beside it. `varied` are the conditions
    of measurements that the trial changes itself.
    """

    turns: Turns
    baseline: Side
    candidates: Sequence[Side]
    keep: Callable[[], None]
    taken: dict[int, list[Taken]]
    varied: Collection[str] = ()
    judge_by: str = SPEED

    def interleave(self, pairs: int, has_time: Callable[[float], bool]) -> Ending:
        """Take A B B A for each candidate in turn, until each has its pairs or the time is over.

        In blocks, so that all candidates meet the same hour, and settings are put on once in two turns.
        """
        longest_s, taken = 0.0, 0
        pace = Pace("tune trial", pairs, self.turns.note, clock=self.turns.clock)
        for first in range(0, pairs, _BLOCK):
            alive = [number for number in self._numbers() if not self.turns.given_up(number)]
            if not alive:
                return Ending("no candidate's settings can be put on and measured")
            if not has_time(longest_s):
                if first >= MIN_PAIRS:
                    return Ending(trimmed=f"pairs {pairs} -> {first}")
                return Ending(
                    f"the budget was spent after {counted(first, 'pair')} of each, and {MIN_PAIRS} are needed"
                )
            started = self.turns.clock()
            for number in alive:
                for turn in islice(schedule(pairs), 2 * first, 2 * (first + _BLOCK)):
                    self._take(number, turn, f"pair {turn.pair + 1} of {pairs}")
                    taken += 1
                    self._expect(pace, taken, 2 * pairs * len(alive))
            longest_s = max(longest_s, self.turns.clock() - started)
        self._again(pairs, has_time)
        return Ending()

    def _expect(self, pace: Pace, taken: int, turns: int) -> None:
        """Say what is left, by the turns and changes of settings so far; with a budget it may end before."""
        left, changes_s = turns - taken, self.turns.changes_s
        if not changes_s or left <= 0:
            return
        turn_s = (pace.took_s() - sum(changes_s)) / taken
        # what is on stays for two turns
        pace.expect(pace.took_s(), left * turn_s + left / 2 * fmean(changes_s))

    def _again(self, pairs: int, has_time: Callable[[float], bool]) -> None:
        """Pairs in which something was lost by chance are measured again, as far as the time goes."""
        took_s = 0.0
        for extra in range(max(_BLOCK, pairs // 5)):
            missing = [number for number in self._numbers() if self._lost_by_chance(number, pairs)]
            for number in missing:
                if self.turns.given_up(number) or not has_time(took_s):
                    continue
                started = self.turns.clock()
                for candidate in (False, True) if self.turns.on == BASELINE else (True, False):
                    label = f"pair {pairs + extra + 1}, for one that was lost"
                    self._take(number, Turn(pairs + extra, candidate), label)
                took_s = max(took_s, self.turns.clock() - started)

    def _lost_by_chance(self, number: int, pairs: int) -> bool:
        """Return whether something that both sides measured once has too few pairs.

        What a side never could is no chance.
        """
        return any(
            len(series.complete) < pairs
            and any(pair.baseline is not None for pair in series.pairs)
            and any(pair.candidate is not None for pair in series.pairs)
            for series in series_of("", "", self.taken.get(number, ()), self.varied)
        )

    def search(self, pairs: int, budget_s: float) -> tuple[Fresh | None, Ending]:
        """Successive halving over the candidates, then fresh pairs of the best, where one is better."""
        search = halve(self._numbers(), self._gain, budget_s, self.turns.clock, final_pairs=pairs)
        best = self._fresh(search.standings[0].candidate, len(search.final)) if search.final else None
        fresh, left = len(search.final), len(self.candidates) - len(search.standings)
        trimmed = [f"{left} of {len(self.candidates)} candidates were not tried"] if left else []
        trimmed += [f"fresh pairs {pairs} -> {fresh}"] if MIN_PAIRS <= fresh < pairs else []
        if search.complete or fresh >= MIN_PAIRS or (search.standings and search.winner is None):
            return best, Ending(trimmed="; ".join(trimmed))
        return best, Ending("the budget was spent before the best could be judged")

    def _numbers(self) -> range:
        return range(1, len(self.candidates) + 1)

    def _take(self, number: int, turn: Turn, label: str) -> Taken:
        on, side = (number, self.candidates[number - 1]) if turn.candidate else (BASELINE, self.baseline)
        taken = Taken(turn, self.turns.take(on, side, label))
        self.taken.setdefault(number, []).append(taken)
        self.keep()
        return taken

    def _gain(self, number: int) -> float | None:
        """Return the gain of one more pair, or of a second one where only the baseline failed in the first."""
        for _ in range(2):
            pair = self._pair(number)
            if all(taken.measurements for taken in pair if not taken.turn.candidate):
                break
        return _objective(pair, self.varied, self.judge_by)

    def _pair(self, number: int) -> list[Taken]:
        """Both turns of a pair, beginning with what is on the hosts."""
        pair = len(self.taken.get(number, ())) // 2
        order = (False, True) if self.turns.on in (BASELINE, None) else (True, False)
        label = f"candidate {number} of {len(self.candidates)}, its pair {pair + 1}"
        return [self._take(number, Turn(pair, candidate), label) for candidate in order]

    def _fresh(self, number: int, pairs: int) -> Fresh:
        """Return the candidate's last pairs, numbered as a trial of their own."""
        last = self.taken[number][-2 * pairs :]
        first = min(row.turn.pair for row in last)
        return number, tuple(replace(row, turn=replace(row.turn, pair=row.turn.pair - first)) for row in last)


def ranking(
    candidates: Sequence[Side], taken: Mapping[int, Sequence[Taken]], varied: Collection[str], judge_by: str = SPEED
) -> tuple[Ranked, ...]:
    """Return what a search has seen of each candidate so far, the best first."""
    rows = [_ranked(candidates[number - 1].label, taken[number], varied, judge_by) for number in sorted(taken)]
    return tuple(sorted(rows, key=lambda row: (row.failed, -row.pairs, -(row.gain_percent or -math.inf))))


def _ranked(label: str, taken: Sequence[Taken], varied: Collection[str], judge_by: str) -> Ranked:
    gains = [_objective(taken[start : start + 2], varied, judge_by) for start in range(0, len(taken) - 1, 2)]
    measured = [gain for gain in gains if gain is not None]
    percent = 100 * math.expm1(median(measured)) if measured else None
    # its own failure puts it out, the baseline's does not
    broken = not all(turn.measurements for turn in taken if turn.turn.candidate)
    return Ranked(label, len(measured), percent, failed=broken)


def _objective(pair: Sequence[Taken], varied: Collection[str], judge_by: str) -> float | None:
    """Return the mean of the probes' mean gains, as a logarithm; None where anything could not be measured."""
    gains: dict[str, list[float]] = {}
    for series in series_of("", "", pair, varied):
        if not decides(series.unit, judge_by):
            continue
        sign = -1 if lower_is_better(series) else 1
        if len(series.complete) != 1:
            return None
        ((baseline, candidate),) = series.complete
        gains.setdefault(series.probe, []).append(sign * math.log(candidate / baseline))
    return fmean(map(fmean, gains.values())) if gains else None
