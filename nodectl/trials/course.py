"""The course of a trial: turns in an order that no drift can favour, as far as the time goes."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from itertools import islice
from statistics import fmean, median

from nodectl.model.trial import Ranked, Side
from nodectl.trials.halving import halve
from nodectl.trials.series import Taken, Turn, schedule, series_of
from nodectl.trials.turns import Turns
from nodectl.trials.verdict import MIN_PAIRS, lower_is_better

# the baseline's number; candidates count from 1
BASELINE = 0
# pairs in a block: A B B A
_BLOCK = 2


@dataclass(frozen=True, slots=True)
class Ending:
    """`reason`: why it is not what was asked for; `trimmed`: what was given up for the budget, and can be spared."""

    reason: str = ""
    trimmed: str = ""


@dataclass(slots=True)
class Course:
    """What was taken for each candidate, by its number; `keep` is called after each turn."""

    keep: Callable[[], None]
    taken: dict[int, list[Taken]] = field(default_factory=dict)

    def add(self, number: int, taken: Taken) -> None:
        """Add a turn of the candidate with this number, and save what there is."""
        self.taken.setdefault(number, []).append(taken)
        self.keep()


def interleave(
    turns: Turns,
    course: Course,
    baseline: Side,
    candidates: Sequence[Side],
    pairs: int,
    has_time: Callable[[float], bool],
) -> Ending:
    """A B B A for each candidate in turn, until each has its pairs or the time is over.

    In blocks, so that all candidates meet the same hour, and settings are put on once in two turns.
    """
    longest_s = 0.0
    for first in range(0, pairs, _BLOCK):
        alive = [number for number in _numbers(candidates) if not turns.given_up(number)]
        if not alive:
            return Ending("no candidate's settings can be put on")
        if not has_time(longest_s):
            if first >= MIN_PAIRS:
                return Ending(trimmed=f"pairs {pairs} -> {first}")
            return Ending(f"the budget was spent after {first} pairs of each, and {MIN_PAIRS} are needed")
        started = turns.clock()
        for number in alive:
            for turn in islice(schedule(pairs), 2 * first, 2 * (first + _BLOCK)):
                label = f"pair {turn.pair + 1} of {pairs}"
                _take(turns, course, baseline, number, candidates[number - 1], turn, label)
        longest_s = max(longest_s, turns.clock() - started)
    return Ending()


def _numbers(candidates: Sequence[Side]) -> range:
    return range(1, len(candidates) + 1)


def _take(turns: Turns, course: Course, baseline: Side, number: int, side: Side, turn: Turn, label: str) -> Taken:
    taken = Taken(turn, turns.take(*((number, side) if turn.candidate else (BASELINE, baseline)), label))
    course.add(number, taken)
    return taken


@dataclass(slots=True)
class Hunt:
    """A search: successive halving over the candidates, then fresh pairs of the best."""

    turns: Turns
    course: Course
    baseline: Side
    candidates: Sequence[Side]
    varied: Collection[str] = ()

    def run(self, pairs: int, budget_s: float) -> tuple[int | None, tuple[Taken, ...], Ending]:
        """The winner's number and its fresh pairs, where there are any."""
        search = halve(list(_numbers(self.candidates)), self._gain, budget_s, self.turns.clock, final_pairs=pairs)
        winner = search.standings[0].candidate if search.final else None
        final = tuple(self.course.taken[winner][-2 * len(search.final) :]) if winner is not None else ()
        fresh, left = len(search.final), len(self.candidates) - len(search.standings)
        trimmed = [f"{left} of {len(self.candidates)} candidates were not tried"] if left else []
        trimmed += [f"fresh pairs {pairs} -> {fresh}"] if MIN_PAIRS <= fresh < pairs else []
        if search.complete or fresh >= MIN_PAIRS or (search.standings and search.winner is None):
            return winner, final, Ending(trimmed="; ".join(trimmed))
        return winner, final, Ending("the budget was spent before the best could be judged")

    def ranking(self) -> tuple[Ranked, ...]:
        """What was seen of each candidate so far, the best first."""
        rows = [self._ranked(number) for number in _numbers(self.candidates) if number in self.course.taken]
        return tuple(sorted(rows, key=lambda row: (row.failed, -row.pairs, -(row.gain_percent or -math.inf))))

    def _ranked(self, number: int) -> Ranked:
        taken = self.course.taken[number]
        gains = [_objective(taken[start : start + 2], self.varied) for start in range(0, len(taken) - 1, 2)]
        known = [gain for gain in gains if gain is not None]
        percent = 100 * math.expm1(median(known)) if known else None
        # its own failure puts it out, the baseline's does not
        broken = not all(own.measurements for own in taken if own.turn.candidate)
        return Ranked(self.candidates[number - 1].label, len(known), percent, failed=broken)

    def _gain(self, number: int) -> float | None:
        """One pair of a candidate; a second one where it was the baseline that could not be measured."""
        for _ in range(2):
            pair = self._pair(number)
            if all(taken.measurements for taken in pair if not taken.turn.candidate):
                break
        return _objective(pair, self.varied)

    def _pair(self, number: int) -> list[Taken]:
        """Beginning with what is on the hosts."""
        side = self.candidates[number - 1]
        pair = len(self.course.taken.get(number, ())) // 2
        order = (False, True) if self.turns.on in (BASELINE, None) else (True, False)
        label = f"candidate {number} of {len(self.candidates)}, its pair {pair + 1}"
        turns = [Turn(pair, candidate) for candidate in order]
        return [_take(self.turns, self.course, self.baseline, number, side, turn, label) for turn in turns]


def _objective(pair: Sequence[Taken], varied: Collection[str]) -> float | None:
    """The mean over the probes of their mean gains, as a logarithm; None where anything could not be measured."""
    gains: dict[str, list[float]] = {}
    for series in series_of("", "", pair, varied):
        sign = -1 if lower_is_better(series) else 1
        if len(series.complete) != 1:
            return None
        ((baseline, candidate),) = series.complete
        gains.setdefault(series.probe, []).append(sign * math.log(candidate / baseline))
    return fmean(map(fmean, gains.values())) if gains else None
