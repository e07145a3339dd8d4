"""What checks of a host share: findings in few words, and 'could not look' that never passes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from nodectl.model.facts import Lab, Unread
from nodectl.model.finding import Finding
from nodectl.model.status import Status
from nodectl.profiles.resolve import Resolved

NOT_SETTABLE = "not settable on this host"


@dataclass(frozen=True, slots=True)
class Subject:
    """One host: its facts by subject, and what it should be; None where its profiles are not known."""

    host: str
    facts: Mapping[str, object]
    wanted: Resolved | None
    variables: Mapping[str, Any] = field(default_factory=dict)

    def shares(self, what: str) -> bool:
        """A lab host has this from the machine below it."""
        lab = self.facts.get("lab")
        return isinstance(lab, Lab) and what in lab.shared

    def finding(
        self, check: str, status: Status, subject: str = "", *, expected: str = "", actual: str = "", remedy: str = ""
    ) -> Finding:
        """What is fine, or not this host's to have, needs no remedy."""
        quiet = status in (Status.OK, Status.SKIPPED)
        return Finding(self.host, check, status, subject, "none", expected, actual, "" if quiet else remedy)

    def unread(self, check: str, value: object, expected: str) -> Iterator[Finding]:
        """The finding of a subject that could not be read; nothing where it was never asked for."""
        if isinstance(value, Unread):
            remedy = "look there at what `nodectl facts` reads"
            actual = f"{value.kind}: {value.reason}"
            yield self.finding(check, Status.UNKNOWN, expected=expected, actual=actual, remedy=remedy)


Check = Callable[[Subject], Iterator[Finding]]


def held(is_so: bool) -> Status:
    """OK or FAILED."""
    return Status.OK if is_so else Status.FAILED
