"""What was found in the turns of a trial, each thing once, with how often and under which settings."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from nodectl.model.finding import Finding
from nodectl.model.status import Status

_Key = tuple[str, str, str, str, Status]


@dataclass(slots=True)
class Heard:
    """Findings as they come in."""

    _settled: set[str] = field(default_factory=set)
    _findings: dict[_Key, Finding] = field(default_factory=dict)
    _labels: dict[_Key, list[str]] = field(default_factory=dict)

    def settings(self, label: str, found: Iterable[Finding]) -> None:
        """While settings were put on: what failed there has failed."""
        self._hear(label, found)

    def settled(self, label: str) -> None:
        """They could be put on all the same, at another time."""
        self._settled.add(label)

    def measuring(self, label: str, found: Iterable[Finding]) -> None:
        """While it was measured: a warning, for the verdict on the pairs says what it comes to."""
        told = (each for each in found if each.status is not Status.SKIPPED)
        bad = (Status.FAILED, Status.UNKNOWN)
        self._hear(label, (replace(each, status=Status.WARNING) if each.status in bad else each for each in told))

    def _hear(self, label: str, found: Iterable[Finding]) -> None:
        for each in found:
            key = (each.check, each.host, each.subject, each.kind, each.status)
            self._findings.setdefault(key, each)
            self._labels.setdefault(key, []).append(label)

    def findings(self) -> tuple[Finding, ...]:
        """Each with its turns; what did not last is a warning."""
        return tuple(
            replace(each, actual=f"{each.actual} ({_turns(labels)})", status=self._status(each.status, labels))
            for each, labels in ((each, self._labels[key]) for key, each in self._findings.items())
        )

    def _status(self, status: Status, labels: list[str]) -> Status:
        return Status.WARNING if status in (Status.FAILED, Status.UNKNOWN) and self._settled >= {*labels} else status


def _turns(labels: list[str]) -> str:
    counts = {label: labels.count(label) for label in labels}
    return ", ".join(f"{count} of its turns with {label}" for label, count in counts.items())
