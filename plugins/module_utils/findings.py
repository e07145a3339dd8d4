"""The one shape in which a verify task says what it looked at: the keys of `nodectl health`, without the host."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:  # nodes run this from Python 3.8 on, which cannot evaluate these
    Finding = dict[str, str]

STATUSES = ("failed", "unknown", "warning", "ok", "skipped")
NOT_SETTABLE = "not settable on this host"


def finding(
    check: str,
    status: str,
    subject: str = "",
    *,
    expected: str = "",
    actual: str = "",
    remedy: str = "",
    action: str = "none",
    evidence: str = "",
) -> Finding:
    """One line of a verdict; what is fine needs no remedy."""
    if status not in STATUSES:
        raise ValueError(f"{status!r} is no status; one of {', '.join(STATUSES)}")
    return {
        "check": check,
        "subject": subject,
        "status": status,
        "action": action,
        "expected": expected,
        "actual": actual,
        "remedy": "" if status in ("ok", "skipped") else remedy,
        "evidence": evidence,
    }


def not_settable(check: str, subject: str, expected: str, why: str) -> Finding:
    """What this host cannot hold (a container, a namespace): neither failed nor pretended."""
    return finding(check, "skipped", subject, expected=expected, actual=f"{NOT_SETTABLE}: {why}")


def compared(check: str, subject: str, expected: object, actual: object, remedy: str) -> Finding:
    """`ok` where both read the same, else `failed`."""
    status = "ok" if str(expected) == str(actual) else "failed"
    return finding(check, status, subject, expected=str(expected), actual=str(actual), remedy=remedy)
