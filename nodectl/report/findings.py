"""Findings as documents, as a table of what is not fine, as a list with remedies, on one line; and what changed."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from itertools import pairwise
from typing import Any

from nodectl.common.counting import counted
from nodectl.common.few import few
from nodectl.common.nodeset import fold
from nodectl.model.finding import Finding
from nodectl.model.status import Status, worst
from nodectl.report.folding import HINT, TWO_SCREENS, folded

_FINE = (Status.OK, Status.SKIPPED)
_MOST_IN_A_LINE = 8
_KEYS = ("host", "check", "subject", "status", "action", "expected", "actual", "remedy", "evidence")


def finding_document(finding: Finding) -> dict[str, str]:
    """Return the keys that `health` and `provision` show."""
    return {name: str(getattr(finding, name)) for name in _KEYS}


def whole_finding(finding: Finding) -> dict[str, Any]:
    """All fields of a finding, as `topology` shows them."""
    return {**asdict(finding), "status": finding.status.value, "hosts": list(finding.hosts)}


def findings_table(
    findings: Sequence[Finding], *, everything: bool = False, rows: int = TWO_SCREENS, columns: int | None = None
) -> str:
    """Return what is not fine, folded into `rows` (or each finding), then how many there are of each status.

    `columns` of the terminal that shows it; None where none does, and a row is a line.
    """
    return "\n".join([*findings_lines(findings, everything=everything, rows=rows, columns=columns), counts(findings)])


def findings_lines(
    findings: Sequence[Finding], *, everything: bool = False, rows: int = TWO_SCREENS, columns: int | None = None
) -> list[str]:
    """Return the table without its count."""
    if everything:
        return [*map(_line, grouped(findings, _without_host))]
    return folded([finding for finding in findings if finding.status not in _FINE], rows, columns=columns)


def grouped(findings: Sequence[Finding], alike: Callable[[Finding], object]) -> list[list[Finding]]:
    """Return the findings of which `alike` says the same, worst first."""
    groups: dict[object, list[Finding]] = defaultdict(list)
    for finding in sorted(findings, key=lambda finding: finding.status.rank):
        groups[alike(finding)].append(finding)
    return list(groups.values())


def findings_list(findings: Sequence[Finding], *, everything: bool = False) -> str:
    """Return a line for each thing found, worst first, and one for its remedy; for findings of a measurement.

    What is said alike of several hosts or paths is said once. More than two screens are folded as `health` does, unless
    `everything` is asked for, which folds nothing.
    """
    alike = [[finding] for finding in _by_rank(findings)] if everything else grouped(findings, _said)
    told = [list(_told(group)) for group in alike]
    lines = [line for group in told for line in group] if everything else _each_remedy_once(told)
    return "\n".join(lines if everything or len(lines) <= TWO_SCREENS else folded(findings, TWO_SCREENS))


def _each_remedy_once(told: Sequence[Sequence[str]]) -> list[str]:
    """Each thing, and what to do below the last of those that follow each other and call for the same."""
    lines: list[str] = []
    for (first, *more), following in pairwise([*told, ()]):
        lines += [first] if more and more == list(following[1:]) else [first, *more]
    return lines


def _by_rank(findings: Sequence[Finding]) -> list[Finding]:
    return sorted(findings, key=lambda finding: finding.status.rank)


def _said(finding: Finding) -> tuple[object, ...]:
    is_of_host = finding.kind == "host" or not finding.subject
    return finding.status, finding.check, finding.actual, finding.remedy, is_of_host, is_of_host and finding.subject


def _told(alike: Sequence[Finding]) -> Iterator[str]:
    finding = alike[0]
    is_of_host = finding.kind == "host" or not finding.subject
    if is_of_host:
        hosts = finding.host if len(alike) == 1 else fold(dict.fromkeys(each.host for each in alike))
        about = ": ".join(filter(None, [hosts, finding.subject]))
    else:
        about = few(list(dict.fromkeys(each.subject for each in alike)))
    # what a host or a login says is not to look like a line of nodectl's own
    yield f"{finding.status}  {finding.check}  {about}: {finding.actual}".replace("\n", r"\n")
    if finding.remedy:
        yield f"  try: {finding.remedy}".replace("\n", r"\n")


def counts(findings: Sequence[Finding]) -> str:
    """`2 failed, 40 ok on 4 hosts`."""
    hosts = len({finding.host for finding in findings})
    return f"{numbers(findings)} on {counted(hosts, 'host')}"


def numbers(findings: Sequence[Finding]) -> str:
    """`2 failed, 40 ok`."""
    of_status = Counter(finding.status for finding in findings)
    return ", ".join(f"{of_status[status]} {status}" for status in Status if of_status[status]) or "nothing looked at"


def one_line(findings: Sequence[Finding]) -> str:
    """Return the worst status, and the findings that have it, on one line."""
    status = worst(finding.status for finding in findings)
    if status in _FINE:
        return f"{status}: {counts(findings)}"
    named = [f"{finding.host} {_name(finding)}: {finding.actual}" for finding in findings if finding.status is status]
    more = [f"and {len(named) - _MOST_IN_A_LINE} more"] if len(named) > _MOST_IN_A_LINE else []
    return " ".join(f"{status}: {'; '.join([*named[:_MOST_IN_A_LINE], *more])}".split())


def changes(before: Sequence[Finding], after: Sequence[Finding]) -> str:
    """Return what is not fine now and was not so before (+), and what is gone (-); empty where nothing changed."""
    lines = []
    for sign, ours, theirs in (("+", after, before), ("-", before, after)):
        known = {_place(finding) for finding in theirs if finding.status not in _FINE}
        new = [finding for finding in ours if finding.status not in _FINE and _place(finding) not in known]
        told = folded(new, TWO_SCREENS // 2, remedies=sign == "+")
        lines += [line if line.startswith(" ") or line == HINT else f"{sign} {line}" for line in told]
    return "\n".join(lines)


def _place(finding: Finding) -> tuple[object, ...]:
    return finding.host, finding.check, finding.subject, finding.status


def _without_host(finding: Finding) -> Finding:
    return replace(finding, host="", kind="", hosts=())


def _name(finding: Finding) -> str:
    return f"{finding.check}: {finding.subject}" if finding.subject else finding.check


def _line(alike: Sequence[Finding]) -> str:
    finding, hosts = alike[0], fold(dict.fromkeys(finding.host for finding in alike))
    text = f"{finding.status.upper()}  {hosts}  {_name(finding)}: {finding.actual}"
    text += f"; expected {finding.expected}" if finding.expected else ""
    # what a host printed is not to look like a finding of its own
    return "\n    ".join(line.replace("\n", r"\n") for line in [text, *_more(finding)])


def _more(finding: Finding) -> Iterator[str]:
    if finding.evidence:
        yield f"seen: {finding.evidence}"
    if finding.action != "none":
        yield f"action: {finding.action}"
    if finding.remedy:
        yield f"try: {finding.remedy}"
