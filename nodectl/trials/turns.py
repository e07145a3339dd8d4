"""One turn after another: put a side's settings on if they are not, measure, collect findings, end on lost hosts.

It knows neither playbooks nor probes: both are handed in, so that a trial's course is tested without a host.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice

from nodectl.common.counting import counted
from nodectl.common.units import format_value, time_text
from nodectl.model.finding import Finding
from nodectl.model.measurement import Measurement
from nodectl.model.status import Status
from nodectl.probes.base import Note, ProbeResult
from nodectl.trials.series import Taken, schedule
from nodectl.trials.verdict import MIN_PAIRS

_Key = tuple[str, str, str, str, Status]
_BAD = (Status.FAILED, Status.UNKNOWN)


@dataclass(slots=True)
class TurnFindings:
    """The findings of all turns, each once, with how many turns of which side had it.

    `settled` are the sides whose settings could be put on, if not always.
    """

    settled: set[str] = field(default_factory=set)
    _findings: dict[_Key, Finding] = field(default_factory=dict)
    _labels: dict[_Key, list[str]] = field(default_factory=dict)

    def add_settings(self, label: str, findings: Iterable[Finding]) -> None:
        """Add findings from putting settings on, with their status."""
        for finding in findings:
            key = (finding.check, finding.host, finding.subject, finding.kind, finding.status)
            self._findings.setdefault(key, finding)
            self._labels.setdefault(key, []).append(label)

    def add_measured(self, label: str, findings: Iterable[Finding]) -> None:
        """Add findings from measuring, as warnings at most: the verdict on the pairs says what a failure costs."""
        made = [finding for finding in findings if finding.status is not Status.SKIPPED]
        self.add_settings(label, [replace(row, status=Status.WARNING) if row.status in _BAD else row for row in made])

    def findings(self) -> tuple[Finding, ...]:
        """Each finding with its number of turns; a warning where the settings could be put on another time."""
        told = []
        for key, finding in self._findings.items():
            labels = self._labels[key]
            counts = ", ".join(f"{labels.count(label)} of its turns with {label}" for label in dict.fromkeys(labels))
            is_passing = finding.status in _BAD and self.settled >= {*labels}
            status = Status.WARNING if is_passing else finding.status
            told.append(replace(finding, actual=f"{finding.actual} ({counts})", status=status))
        return tuple(told)


# so many turns one after the other without any measurement: it is not the settings
_SILENT = 3
# a side whose settings could not be put on, or that measured nothing from the start, so often is given up
_REFUSALS = 2
# where a host was only not reached
_TRIES = 2


class TrialEndError(Exception):
    """The trial cannot go on; what was measured until then stands."""


@dataclass(slots=True)
class Turns:
    """The hosts of a trial; `on` is the number of the side whose settings they have, where that is certain."""

    put_on: Callable[[str], tuple[Finding, ...]]
    lost: Callable[[], Mapping[str, str]]
    measure: Callable[[], ProbeResult]
    note: Note
    clock: Callable[[], float]
    collected: TurnFindings = field(default_factory=TurnFindings)
    on: int | None = None
    _silent: int = 0
    _why: str = ""
    _refused: dict[int, int] = field(default_factory=dict)
    _worked: set[int] = field(default_factory=set)

    def given_up(self, number: int) -> bool:
        """Return whether its settings could not be put on more than once, or nothing was ever measured with them."""
        return self._refused.get(number, 0) >= _REFUSALS

    def take(self, number: int, profile: str, what: str) -> tuple[Measurement, ...]:
        """Measure with a profile on; nothing if that failed, TrialEndError if all ends."""
        self._end_if_lost()
        is_on = self._is_on(number, profile)
        result = self.measure() if is_on else ProbeResult()
        if is_on:
            self.collected.add_measured(profile, result.findings)
            self._why = _first(result.findings)
        measurements = result.measurements
        # before it counts: a host that went away in the middle has measured nothing that can be compared
        self._end_if_lost()
        first = {row.probe: f"{row.probe} {format_value(row.value, row.unit)}" for row in reversed(measurements)}
        brief = ", ".join(reversed(first.values()))
        self.note(f"{what}, {profile}: {brief or f'nothing measured: {self._why}'}")
        self._silent = 0 if measurements else self._silent + 1
        if measurements:
            self._worked.add(number)
        elif is_on and number not in self._worked:
            self._refused[number] = self._refused.get(number, 0) + 1
        if self._silent >= _SILENT:
            raise TrialEndError(f"nothing could be measured in {_SILENT} turns one after the other")
        return measurements

    def _is_on(self, number: int, profile: str) -> bool:
        if self.on == number:
            return True
        # whatever becomes of it, what was on before is not to be relied on
        self.on = None
        for _ in range(_TRIES):
            findings = self.put_on(profile)
            self.collected.add_settings(profile, findings)
            bad = [finding for finding in findings if finding.status in _BAD]
            if not bad:
                self.on = number
                self.collected.settled.add(profile)
                return True
            self._why = _first(bad)
            if any(finding.status is Status.FAILED for finding in bad) or self.lost():
                break
        self._refused[number] = self._refused.get(number, 0) + 1
        return False

    def _end_if_lost(self) -> None:
        lost = self.lost()
        if lost:
            reasons = "; ".join(f"{host}: {reason}" for host, reason in sorted(lost.items()))
            raise TrialEndError(f"lost in the middle of the trial: {reasons}")


def _first(findings: Sequence[Finding]) -> str:
    if not findings:
        return "the probes do not say why"
    worst = min(findings, key=lambda finding: finding.status.rank)
    return f"{worst.subject or worst.host}: {worst.actual}"


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
