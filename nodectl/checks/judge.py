"""All checks on one host, and the findings of hosts that did not answer or whose profiles cannot work together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from traceback import walk_tb

from nodectl.checks.catalogue import judgements
from nodectl.checks.causes import after_causes
from nodectl.checks.check import Check, Judgement, Subject
from nodectl.checks.system.hung import told_once
from nodectl.common.few import clipped
from nodectl.common.patience import patience
from nodectl.model.finding import Finding
from nodectl.model.status import Status

ORDER = 0
LONGEST = 1000

PROFILES = Check(
    "profiles", looks_at="the host's profiles", fires="they cannot work together, none is named, or they warn"
)
REACH = Check("reach", looks_at="the host", fires="no answer")


def judge(host: Subject, by: Sequence[Judgement[Subject]] | None = None) -> tuple[Finding, ...]:
    """The findings of these judgements (of all where None) on one host."""
    chosen = judgements() if by is None else by
    with patience():
        findings = [finding for judgement in chosen for finding in _judged(judgement, host)]
    return tuple(_shortened(finding) for finding in after_causes(told_once(host, findings)))


def _judged(judgement: Judgement[Subject], host: Subject) -> Iterator[Finding]:
    """The findings; where the function fails, what it found so far, and its checks as unknown on this host."""
    try:
        yield from judgement.function(host)
    except Exception as error:  # a mistake in one check, or what nobody thought a host could print, ends no other look
        *_, (frame, line) = walk_tb(error.__traceback__)
        name = judgement.function.__module__
        reason = f"{type(error).__name__}: {error} (line {line} of {Path(frame.f_code.co_filename).name})"
        for check in judgement.checks:
            remedy = f"a mistake in {name}: please report it, with `nodectl record` of this host"
            yield host.finding(check, Status.UNKNOWN, actual=f"the check failed: {reason}", remedy=remedy)


def _shortened(finding: Finding) -> Finding:
    """A host may print what it likes; nobody reads a finding of a megabyte."""
    if len(finding.subject) + len(finding.expected) + len(finding.actual) + len(finding.evidence) <= LONGEST:
        return finding
    subject, expected, actual, evidence = (
        clipped(text, LONGEST // 4) for text in (finding.subject, finding.expected, finding.actual, finding.evidence)
    )
    return replace(finding, subject=subject, expected=expected, actual=actual, evidence=evidence)


def unreachable(host: str, reason: str, remedy: str = "") -> Finding:
    """A host that did not answer is unknown, and never passes."""
    remedy = remedy or f"run `nodectl exec -l {host} -- true`"
    return Finding(host, REACH.id, Status.UNKNOWN, expected="an answer", actual=reason, remedy=remedy)


def not_judged(host: str, error: Exception) -> Finding:
    """A host whose answer nobody foresaw is unknown, and ends no look at others."""
    actual = clipped(f"its answer could not be judged: {type(error).__name__}: {error}", LONGEST)
    remedy = "a mistake in nodectl: please report it, with `nodectl record` of this host"
    return Finding(host, REACH.id, Status.UNKNOWN, expected="an answer", actual=actual, remedy=remedy)


def no_profile(host: str, reason: str, remedy: str, *, impossible: bool) -> Finding:
    """Profiles that cannot work together have failed; without them what should be is not known."""
    status = Status.FAILED if impossible else Status.UNKNOWN
    return Finding(host, PROFILES.id, status, expected="profiles that work together", actual=reason, remedy=remedy)


def profile_warning(host: str, number: int, text: str) -> Finding:
    """A warning that the host's profiles give each time they are used."""
    return Finding(host, PROFILES.id, Status.WARNING, f"warning {number}", actual=text)
