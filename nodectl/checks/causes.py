"""A symptom's remedy yields to its cause's: what is missing is mended before it is written off."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from nodectl.checks.catalogue import checks
from nodectl.model.finding import Finding
from nodectl.model.status import Status

_WRONG = (Status.FAILED, Status.WARNING)


def after_causes(findings: Sequence[Finding]) -> list[Finding]:
    """One host's findings; a remedy of a check that follows others is theirs, where one of these fired."""
    fired = {finding.check: finding for finding in reversed(findings) if finding.status in _WRONG}
    return [_after(finding, fired) for finding in findings]


def _after(finding: Finding, fired: dict[str, Finding]) -> Finding:
    check = checks().get(finding.check)
    if check is None or finding.status not in _WRONG:
        return finding
    cause = next((fired[name] for name in check.follows if name in fired), None)
    if cause is None or not cause.remedy:
        return finding
    return replace(finding, remedy=f"first mend what {cause.check} says, which may be why: {cause.remedy}")
