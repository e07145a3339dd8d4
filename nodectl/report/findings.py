"""Findings as a table of what is not fine, hosts that agree on one line, worst first; as one line; and what changed."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

from nodectl.common.nodeset import fold
from nodectl.model.finding import Finding
from nodectl.model.status import Status, worst

_FINE = (Status.OK, Status.SKIPPED)
_SAID = 8


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


def findings_table(findings: Sequence[Finding], *, everything: bool = False) -> str:
    """A line for each finding that is not fine (or each), then how many there are of each status."""
    groups: dict[Finding, list[str]] = defaultdict(list)
    for found in sorted(findings, key=lambda each: each.status.rank):
        if everything or found.status not in _FINE:
            groups[_without_host(found)].append(found.host)
    lines = [_line(found, fold(list(dict.fromkeys(hosts)))) for found, hosts in groups.items()]
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
    if status in _FINE:
        return f"{status}: {counts(findings)}"
    said = [f"{found.host} {_name(found)} is {found.actual}" for found in findings if found.status is status]
    more = [f"and {len(said) - _SAID} more"] if len(said) > _SAID else []
    return " ".join(f"{status}: {'; '.join([*said[:_SAID], *more])}".split())


def changes(before: Sequence[Finding], after: Sequence[Finding]) -> str:
    """What is not fine now and was not so before (+), and what is gone (-); empty where nothing changed."""
    lines = []
    for sign, ours, theirs in (("+", after, before), ("-", before, after)):
        known = {_place(each) for each in theirs if each.status not in _FINE}
        groups: dict[Finding, list[str]] = defaultdict(list)
        for found in sorted(ours, key=lambda each: each.status.rank):
            if found.status not in _FINE and _place(found) not in known:
                groups[_without_host(found)].append(found.host)
        lines += [f"{sign} {_line(found, fold(hosts), remedy=sign == '+')}" for found, hosts in groups.items()]
    return "\n".join(lines)


def _place(found: Finding) -> tuple[object, ...]:
    return found.host, found.check, found.subject, found.status


def _without_host(found: Finding) -> Finding:
    return Finding(
        "",
        found.check,
        found.status,
        found.subject,
        found.action,
        found.expected,
        found.actual,
        found.remedy,
        found.evidence,
    )


def _name(found: Finding) -> str:
    return f"{found.check}: {found.subject}" if found.subject else found.check


def _line(found: Finding, hosts: str, *, remedy: bool = True) -> str:
    text = f"{found.status.upper()}  {hosts}  {_name(found)}: {found.actual}"
    text += f"; expected {found.expected}" if found.expected else ""
    # what a host printed is not to look like a finding of its own
    return "\n    ".join(each.replace("\n", r"\n") for each in [text, *(_more(found) if remedy else ())])


def _more(found: Finding) -> Iterator[str]:
    if found.evidence:
        yield f"seen: {found.evidence}"
    if found.action != "none":
        yield f"action: {found.action}"
    if found.remedy:
        yield f"try: {found.remedy}"
