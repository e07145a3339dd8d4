"""The course of a trial: turns in an order that no drift can favour, as far as the time goes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice

from nodectl.common.counting import counted
from nodectl.common.units import time_text
from nodectl.trials.series import Taken, schedule
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
            alive = [number for number in range(1, len(self.candidates) + 1) if not self.turns.given_up(number)]
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
                    on, profile = (number, self.candidates[number - 1]) if turn.candidate else (BASELINE, self.baseline)
                    taken = Taken(turn, self.turns.take(on, profile, f"pair {turn.pair + 1} of {pairs}"))
                    self.taken.setdefault(number, []).append(taken)
                    self.keep()
            longest_s = max(longest_s, self.turns.clock() - started)
            if (left := pairs - first - _BLOCK) > 0:
                left_s = left * (self.turns.clock() - began) / (first + _BLOCK)
                self.turns.note(f"tune trial: about {time_text(left_s)} left")
        return Ending()
