"""Runs all checks on one host, and adjusts findings to their causes; hosts without an answer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from traceback import walk_tb

from nodectl.checks.catalogue import checks, judgements
from nodectl.checks.check import Check, Judgement, Subject
from nodectl.checks.system.basics import told_once
from nodectl.common.few import clipped
from nodectl.model.finding import Finding, traces_first
from nodectl.model.status import Status

ORDER = 0


LONGEST = 1000

PROFILES = Check("profiles", fires="they cannot work together, none is named, or they warn")
REACH = Check("reach", fires="no answer")


def judge(host: Subject, by: Sequence[Judgement[Subject]] | None = None) -> tuple[Finding, ...]:
    """Return the findings of these judgements (of all where None) on one host."""
    chosen = judgements() if by is None else by
    findings = [finding for judgement in chosen for finding in _judged(judgement, host)]
    return tuple(_with_readable_length(finding) for finding in after_causes(told_once(host, findings)))


def _judged(judgement: Judgement[Subject], host: Subject) -> Iterator[Finding]:
    try:
        yield from judgement.function(host)
    except Exception as error:  # a bug in one check, or an unforeseen output, must not end the other checks
        *_, (frame, line) = walk_tb(error.__traceback__)
        name = judgement.function.__module__
        reason = f"{type(error).__name__}: {error} (line {line} of {Path(frame.f_code.co_filename).name})"
        for check in judgement.checks:
            remedy = f"a mistake in {name}: please report it, with `nodectl record` of this host"
            yield host.finding(check, Status.UNKNOWN, actual=f"the check failed: {reason}", remedy=remedy)


def _with_readable_length(finding: Finding) -> Finding:
    if len(finding.subject) + len(finding.expected) + len(finding.actual) + len(finding.evidence) <= LONGEST:
        return finding
    subject, expected, actual, evidence = (
        clipped(text, LONGEST // 4) for text in (finding.subject, finding.expected, finding.actual, finding.evidence)
    )
    return replace(finding, subject=subject, expected=expected, actual=actual, evidence=evidence)


def unreachable(host: str, reason: str, remedy: str = "") -> Finding:
    """Return the finding of a host that did not answer: unknown, never passed."""
    remedy = remedy or f"run `nodectl exec -l {host} -- true`"
    return Finding(host, REACH.id, Status.UNKNOWN, expected="an answer", actual=reason, remedy=remedy)


def not_judged(host: str, error: Exception) -> Finding:
    """Return the finding of a host whose answer raised an unforeseen error; the other hosts are still judged."""
    actual = clipped(f"its answer could not be judged: {type(error).__name__}: {error}", LONGEST)
    remedy = "a mistake in nodectl: please report it, with `nodectl record` of this host"
    return Finding(host, REACH.id, Status.UNKNOWN, expected="an answer", actual=actual, remedy=remedy)


def no_profile(host: str, reason: str, remedy: str, *, impossible: bool) -> Finding:
    """Return the finding of a host without usable profiles: failed if they are incompatible, unknown if missing."""
    status = Status.FAILED if impossible else Status.UNKNOWN
    return Finding(host, PROFILES.id, status, expected="profiles that work together", actual=reason, remedy=remedy)


def profile_warning(host: str, number: int, text: str) -> Finding:
    """Return the finding of a warning that the host's profiles give each time they are used."""
    return Finding(host, PROFILES.id, Status.WARNING, f"warning {number}", actual=text)


# The remedy of a cause replaces that of its symptom: a part that is missing for another reason is not replaced.

_WRONG = (Status.FAILED, Status.WARNING)


def after_causes(findings: Sequence[Finding]) -> list[Finding]:
    """Return one host's findings; if a check's cause has fired too, the check gets the cause's remedy."""
    fired = {finding.check: finding for finding in reversed(findings) if finding.status in _WRONG}
    adjusted = []
    for finding in findings:
        check = checks().get(finding.check)
        causes = check.follows if check and finding.status in _WRONG else ()
        cause = next((fired[name] for name in causes if name in fired), None)
        if cause and cause.remedy:
            finding = replace(finding, remedy=f"first mend what {cause.check} says, which may be why: {cause.remedy}")
        adjusted.append(finding)
    return adjusted


def all_traces_first(findings: Iterable[Finding]) -> list[Finding]:
    """Return the findings as of `traces_first`; what a role mends (a driver that waits for a reboot) is no fault."""
    return [traces_first(one) if (check := checks().get(one.check)) and not check.roles else one for one in findings]
