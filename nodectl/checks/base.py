"""What checks of a host share: findings in few words, 'could not look' that never passes, and counters over time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from nodectl.checks.counters import Growth, Previous, growth
from nodectl.checks.thresholds import THRESHOLDS
from nodectl.facts.lab import Lab
from nodectl.model.facts import Unread
from nodectl.model.finding import Finding
from nodectl.model.status import Status
from nodectl.profiles.resolve import Resolved

NOT_SETTABLE = "not settable on this host"
Fact = TypeVar("Fact")


@dataclass(frozen=True, slots=True)
class About:
    """A check as the catalogue lists it: its id, what it looks at, and when it is not ok."""

    check: str
    looks_at: str
    fires: str


@dataclass(frozen=True, slots=True)
class Subject:
    """One host: its facts by subject, and what it should be; None where its profiles are not known.

    `previous` is the last reading's counters; what checks ask `growth` of is noted in `counters` for the next one.
    """

    host: str
    facts: Mapping[str, object]
    wanted: Resolved | None
    variables: Mapping[str, Any] = field(default_factory=dict)
    previous: Previous | None = None
    boot_id: str | None = None
    time: float = 0.0
    thresholds: Mapping[str, float] = field(default_factory=dict)
    counters: dict[str, int] = field(default_factory=dict)

    def fact(self, subject: str, kind: type[Fact]) -> Fact | None:
        """The subject's value where it was read."""
        found = self.facts.get(subject)
        return found if isinstance(found, kind) else None

    def threshold(self, name: str) -> float:
        """The site's number, else the default."""
        return self.thresholds.get(name, THRESHOLDS[name].value)

    def growth(self, key: str, value: int, last: int | None = None) -> Growth:
        """The counter `key` against its last reading; `last` is the number at which it stops counting."""
        self.counters[key] = value
        return growth(self.previous, self.boot_id, self.time, key, value, last)

    @property
    def recorded(self) -> bool:
        """A lab host that answers questions about hardware from a recording."""
        lab = self.facts.get("lab")
        return isinstance(lab, Lab) and bool(getattr(lab, "recorded", None))

    def shares(self, what: str) -> bool:
        """A lab host has this from the machine below it."""
        lab = self.facts.get("lab")
        return isinstance(lab, Lab) and what in lab.shared

    def borrows(self, what: str) -> bool:
        """A lab host shows the machine's hardware as its own: nothing to judge, unless a recording stands for it."""
        return self.shares(what) and not self.recorded

    def one_version(
        self, check: str, groups: Mapping[str, Mapping[str, Sequence[str]]], remedy: str
    ) -> Iterator[Finding]:
        """For each group {version: names} whether there is one version only; else a warning that names all."""
        for group, versions in groups.items():
            told = "; ".join(f"{each} on {', '.join(dict.fromkeys(names))}" for each, names in sorted(versions.items()))
            status = Status.OK if len(versions) == 1 else Status.WARNING
            yield self.finding(check, status, group, expected="one version", actual=told, remedy=remedy)

    def finding(
        self,
        check: str,
        status: Status,
        subject: str = "",
        *,
        expected: str = "",
        actual: str = "",
        remedy: str = "",
        action: str = "none",
        evidence: str = "",
    ) -> Finding:
        """What is fine, or not this host's to have, needs no remedy and no action."""
        if status in (Status.OK, Status.SKIPPED):
            remedy, action = "", "none"
        return Finding(self.host, check, status, subject, action, expected, actual, remedy, evidence)

    def all_of(self, check: str, faults: Iterable[Finding], *, expected: str, actual: str) -> Iterator[Finding]:
        """The faults; where there is none, one finding that says so of all that was looked at."""
        quiet = True
        for found in faults:
            quiet = False
            yield found
        if quiet:
            yield self.finding(check, Status.OK, expected=expected, actual=actual)

    def unread(self, check: str, value: object, expected: str) -> Iterator[Finding]:
        """The finding of a subject that could not be read; nothing where it was never asked for."""
        if isinstance(value, Unread):
            remedy = "look there at what `nodectl facts` reads"
            actual = f"{value.kind}: {value.reason}"
            yield self.finding(check, Status.UNKNOWN, expected=expected, actual=actual, remedy=remedy)

    def unknown(self, value: object, expected: str, *checks: str) -> Iterator[Finding]:
        """As `unread` of several checks, but what is not there at all (no such tool or device) is nothing to find."""
        if isinstance(value, Unread) and value.kind == "unknown":
            for check in checks:
                yield from self.unread(check, value, expected)


Check = Callable[[Subject], Iterator[Finding]]


def held(is_so: bool) -> Status:
    """OK or FAILED."""
    return Status.OK if is_so else Status.FAILED


def warned(is_so: bool) -> Status:
    """OK or WARNING."""
    return Status.OK if is_so else Status.WARNING
