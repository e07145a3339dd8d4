"""Findings folded over hosts and subjects: what is said alike of many is said once, worst first, the rest on demand."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain

from nodectl.common.counting import counted
from nodectl.common.few import few
from nodectl.common.nodeset import fold
from nodectl.model.finding import Finding
from nodectl.model.status import Status
from nodectl.report.findings import grouped
from nodectl.report.page.blocks import Block, Cell, Fold, Mark, Section, Table, Tally, Text
from nodectl.report.page.content import Found
from nodectl.report.page.fleet import hosts_text, what_to_do

_FINE = (Status.OK, Status.SKIPPED)
# so many folds are open from the start, of those with few lines
_OPEN, _FEW_LINES = 3, 6
_SUBJECTS = 6


def findings_section(found: Sequence[Found]) -> Section:
    """Return what was found of the hosts, a fold for each check; what is fine is counted."""
    if not found:
        return Section("findings", "Findings", (), "No host was looked at: `nodectl report` without `--no-hosts`.")
    return Section("findings", "Findings", tuple(chain.from_iterable(map(_blocks, found))))


def _blocks(one: Found) -> Iterator[Block]:
    counts = Counter(finding.status for finding in one.findings)
    hosts = counted(len({finding.host for finding in one.findings}), "host")
    yield Text(f"{counted(len(one.findings), 'finding')} of {hosts}: {one.origin.text}.")
    yield Tally(tuple((Mark(status, status.value), counts[status]) for status in Status if counts[status]))
    wrong = [finding for finding in one.findings if finding.status not in _FINE]
    for number, of_check in enumerate(grouped(wrong, lambda finding: (finding.status, finding.check))):
        yield _fold(of_check, one, is_open=number < _OPEN)


def _fold(of_check: Sequence[Finding], one: Found, *, is_open: bool) -> Fold:
    first = of_check[0]
    names = list(dict.fromkeys(finding.host for finding in of_check))
    variants = grouped(of_check, _said)
    rows: list[tuple[Cell, ...]] = [_row(alike) for alike in variants]
    more = f" (and {len(variants) - 1:,} other values)" if len(variants) > 1 else ""
    line = f"{first.check} on {hosts_text(names)}: {first.actual}{more}"
    columns = ("Hosts", "Subject", "Found", "Expected", "What to do", "Seen")
    table = Table(f"{first.check}, {first.status}", columns, rows, one.origin)
    return Fold(Mark(first.status, first.status.value), line, (table,), is_open and len(rows) <= _FEW_LINES)


def _said(finding: Finding) -> tuple[str, ...]:
    return finding.actual, finding.expected, finding.action, finding.remedy


def _row(alike: Sequence[Finding]) -> tuple[Cell, ...]:
    first = alike[0]
    hosts = fold(dict.fromkeys(finding.host for finding in alike))
    subjects = few(list(dict.fromkeys(finding.subject for finding in alike if finding.subject)), _SUBJECTS)
    evidence = list(dict.fromkeys(finding.evidence for finding in alike if finding.evidence))
    more = f" (and {len(evidence) - 1} more)" if len(evidence) > 1 else ""
    return hosts, subjects, first.actual, first.expected, what_to_do(first), (evidence[0] if evidence else "") + more
