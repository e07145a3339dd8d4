"""All checks of `health`, and what becomes of hosts that did not answer or whose profiles cannot be."""

from __future__ import annotations

from dataclasses import replace

from nodectl.checks.base import Subject
from nodectl.checks.catalogue import checks
from nodectl.model.finding import Finding
from nodectl.model.status import Status

_LONGEST = 1000


def judge(host: Subject) -> tuple[Finding, ...]:
    """The findings of all checks on one host."""
    return tuple(_short(found) for check in checks() for found in check(host))


def _short(found: Finding) -> Finding:
    """A host may print what it likes; nobody reads a finding of a megabyte."""
    if len(found.subject) + len(found.expected) + len(found.actual) + len(found.evidence) <= _LONGEST:
        return found
    subject, expected, actual, evidence = (
        clipped(text, _LONGEST // 4) for text in (found.subject, found.expected, found.actual, found.evidence)
    )
    return replace(found, subject=subject, expected=expected, actual=actual, evidence=evidence)


def clipped(text: str, longest: int = _LONGEST) -> str:
    """The text, or its beginning and how long it was."""
    return text if len(text) <= longest else f"{text[:longest]}… ({len(text)} characters)"


def unreachable(host: str, reason: str, remedy: str = "") -> Finding:
    """A host that did not answer is not told, and never passes."""
    remedy = remedy or f"run `nodectl exec -l {host} -- true`"
    return Finding(host, "reach", Status.UNKNOWN, expected="an answer", actual=reason, remedy=remedy)


def no_profile(host: str, reason: str, remedy: str, *, impossible: bool) -> Finding:
    """Profiles that cannot work together have failed; without them what should be is not known."""
    status = Status.FAILED if impossible else Status.UNKNOWN
    return Finding(host, "profiles", status, expected="profiles that work together", actual=reason, remedy=remedy)


def warned(host: str, number: int, text: str) -> Finding:
    """What must be told each time the host's profiles are used."""
    return Finding(host, "profiles", Status.WARNING, f"warning {number}", actual=text)
