"""One turn after another: put a side's settings on if they are not, measure, collect findings, end on lost hosts.

It knows neither playbooks nor probes: both are handed in, so that a trial's course is tested without a host.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from nodectl.common.units import format_value
from nodectl.model.finding import Finding
from nodectl.model.measurement import Measurement
from nodectl.model.status import Status
from nodectl.probes.base import Note, ProbeResult

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
        counted = []
        for key, finding in self._findings.items():
            labels = self._labels[key]
            counts = ", ".join(f"{labels.count(label)} of its turns with {label}" for label in dict.fromkeys(labels))
            is_passing = finding.status in _BAD and self.settled >= {*labels}
            status = Status.WARNING if is_passing else finding.status
            counted.append(replace(finding, actual=f"{finding.actual} ({counts})", status=status))
        return tuple(counted)


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
        self.note(f"{what}, {profile}: {_brief(measurements) or f'nothing measured: {self._why}'}")
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


def _brief(measurements: tuple[Measurement, ...]) -> str:
    """Return the first value of each probe."""
    first = {measurement.probe: measurement for measurement in reversed(measurements)}
    return ", ".join(f"{row.probe} {format_value(row.value, row.unit)}" for row in reversed(first.values()))


def _first(findings: Sequence[Finding]) -> str:
    """Return the worst of them in a few words."""
    if not findings:
        return "the probes do not say why"
    worst = min(findings, key=lambda finding: finding.status.rank)
    return f"{worst.subject or worst.host}: {worst.actual}"
