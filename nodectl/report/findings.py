"""Findings as a table, the hosts that agree on one line, the worst first; as JSON; and as one line for a prolog."""

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence

from nodectl.model.finding import Finding
from nodectl.model.status import Status, worst

Fold = Callable[[Sequence[str]], str]


def finding_document(found: Finding) -> dict[str, str]:
    """The keys that `health` and `provision` show."""
    return {
        "host": found.host,
        "check": found.check,
        "subject": found.subject,
        "status": found.status.value,
        "action": found.action,
        "expected": found.expected,
        "actual": found.actual,
        "remedy": found.remedy,
        "evidence": found.evidence,
    }


def findings_table(findings: Sequence[Finding], fold: Fold) -> str:
    """A line for each finding that is not fine, then how many there are of each status."""
    groups: dict[Finding, list[str]] = defaultdict(list)
    for found in sorted(findings, key=lambda each: each.status.rank):
        if found.status not in (Status.OK, Status.SKIPPED):
            groups[_without_host(found)].append(found.host)
    lines = [_line(found, fold(hosts)) for found, hosts in groups.items()]
    return "\n".join([*lines, counts(findings)])


def counts(findings: Sequence[Finding]) -> str:
    """`2 failed, 40 ok on 4 hosts`."""
    numbers = Counter(found.status for found in findings)
    words = ", ".join(f"{numbers[status]} {status}" for status in Status if numbers[status]) or "nothing looked at"
    hosts = len({found.host for found in findings})
    return f"{words} on {hosts} host{'' if hosts == 1 else 's'}"


def one_line(findings: Sequence[Finding]) -> str:
    """The worst status, and the findings that have it, on one line."""
    status = worst(found.status for found in findings)
    if status in (Status.OK, Status.SKIPPED):
        return f"{status}: {counts(findings)}"
    said = [f"{found.host} {_name(found)} is {found.actual}" for found in findings if found.status is status]
    return " ".join(f"{status}: {'; '.join(said)}".split())


def _without_host(found: Finding) -> Finding:
    return Finding(
        "", found.check, found.status, found.subject, found.action, found.expected, found.actual, found.remedy
    )


def _name(found: Finding) -> str:
    return f"{found.check}: {found.subject}" if found.subject else found.check


def _line(found: Finding, hosts: str) -> str:
    text = f"{found.status.upper()}  {hosts}  {_name(found)}: {found.actual}"
    text += f"; expected {found.expected}" if found.expected else ""
    return text + (f"\n    try: {found.remedy}" if found.remedy else "")
