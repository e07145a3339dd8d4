"""Findings of preflight that the operator lets pass by --skip: which they may be, and how they are told."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from nodectl.checks.catalogue import launch_checks
from nodectl.common.nodeset import fold
from nodectl.common.spelling import meant
from nodectl.errors import UsageError
from nodectl.model.finding import Finding
from nodectl.model.status import Status

_PREFIX = "launch_"
# without what these look at there is nothing to start, or nowhere
_NEEDED = ("launch_reachable", "launch_payload", "launch_interface", "launch_ports")
_FINE = (Status.OK, Status.SKIPPED)


def skipped_checks(names: Iterable[str]) -> tuple[str, ...]:
    """Ids of the named checks, with or without `launch_`; UsageError for what is none, or cannot be left out."""
    known = launch_checks()
    checks = []
    for name in dict.fromkeys(names):
        check = name if name in known else _PREFIX + name
        if check not in known:
            short = [each.removeprefix(_PREFIX) for each in known if each not in _NEEDED]
            raise UsageError(
                f"--skip {name}: preflight has no check of that name",
                f"{meant(name, short)}there are: {', '.join(short)}",
            )
        if check in _NEEDED:
            raise UsageError(f"--skip {name}: no job can start without this check", "mend what it finds")
        checks.append(check)
    return tuple(checks)


def parted(findings: Sequence[Finding], checks: Collection[str]) -> tuple[list[Finding], list[Finding]]:
    """The findings that count, and those that are skipped."""
    kept = [finding for finding in findings if finding.check not in checks]
    return kept, [finding for finding in findings if finding.check in checks]


def said(checks: Sequence[str], skipped: Sequence[Finding]) -> tuple[str, ...]:
    """A line a check and what it had found: `launch_clock: failed on node03: 6.0 s ahead`."""
    lines = []
    for check in checks:
        bad = [finding for finding in skipped if finding.check == check and finding.status not in _FINE]
        words = {finding.actual: finding.status for finding in bad}
        for actual, status in words.items():
            hosts = fold(finding.host for finding in bad if finding.actual == actual)
            lines.append(f"{check}: {status} on {hosts}: {actual}")
        if not bad:
            lines.append(f"{check}: it had found nothing")
    return tuple(lines)
