"""The course of a trial: turns in an order that no drift can favour, as far as the time goes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice

from nodectl.common.counting import counted
from nodectl.common.units import time_text
from nodectl.trials.series import Taken, Turn, schedule, series_of
from nodectl.trials.turns import Turns
from nodectl.trials.verdict import MIN_PAIRS

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
    """The turns of candidates, which count from 1, and their baseline; `keep` is called after each.

    `taken` has each candidate's turns by its number, with those of the baseline beside it.
    """

    turns: Turns
    baseline: str
    candidates: Sequence[str]
    keep: Callable[[], None]
    taken: dict[int, list[Taken]]

    def interleave(self, pairs: int, has_time: Callable[[float], bool]) -> Ending:
        """Take A B B A for each candidate in turn, until each has its pairs or the time is over.

        In blocks, so that all candidates meet the same hour, and settings are put on once in two turns.
        """
        longest_s, began = 0.0, self.turns.clock()
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
            longest_s = max(longest_s, self.turns.clock() - started)
            if (left := pairs - first - _BLOCK) > 0:
                left_s = left * (self.turns.clock() - began) / (first + _BLOCK)
                self.turns.note(f"tune trial: about {time_text(left_s)} left")
        self._again(pairs, has_time)
        return Ending()

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
            for series in series_of("", "", self.taken.get(number, ()))
        )

    def _numbers(self) -> range:
        return range(1, len(self.candidates) + 1)

    def _take(self, number: int, turn: Turn, label: str) -> None:
        on, profile = (number, self.candidates[number - 1]) if turn.candidate else (BASELINE, self.baseline)
        taken = Taken(turn, self.turns.take(on, profile, label))
        self.taken.setdefault(number, []).append(taken)
        self.keep()
