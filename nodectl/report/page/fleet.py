"""Hosts and findings: a verdict for each host and step, then each thing found with its hosts and what to do."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from operator import attrgetter

from nodectl.common.counting import counted
from nodectl.common.few import clipped, few
from nodectl.common.natural import natural
from nodectl.common.nodeset import fold
from nodectl.model.acceptance import Acceptance, StepState
from nodectl.model.finding import Finding
from nodectl.model.status import Status, worst
from nodectl.report.findings import grouped
from nodectl.report.page.blocks import Block, Cell, Fold, Mark, Number, Section, Table, Text
from nodectl.report.page.content import Found, Nature, Origin

_FINE = (Status.OK, Status.SKIPPED)
_SUBJECTS = 6
_LONGEST_NAMES = 160
# a fold with more rows is closed at first
_OPEN_ROWS = 6
_DO_NOTHING = "none"


def origin_of(acceptance: Acceptance) -> Origin:
    """Return where an acceptance's figures are from, as it says itself."""
    natures = {nature.value: nature for nature in Nature}
    return Origin(natures.get(acceptance.nature, Nature.UNTOLD), f"acceptance {acceptance.id}")


def clock(seconds: float) -> str:
    """Return the local time of seconds since 1970."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))


def hosts_section(latest: Acceptance | None, looks: Sequence[Found]) -> Section:
    """Return the verdicts of the latest acceptance; without one, the worst status of each host that was looked at."""
    blocks = _accepted(latest) if latest else _looked(looks)
    missing = "No host was judged: `nodectl accept`, or `nodectl report` without `--no-hosts`."
    return Section("hosts", "Hosts", missing, tuple(blocks))


def _accepted(acceptance: Acceptance) -> Iterator[Block]:
    origin = origin_of(acceptance)
    ended = "and is NOT complete" if acceptance.ended is None else f"until {clock(acceptance.ended)}"
    yield Text(f"Acceptance {acceptance.id}, level {acceptance.level}: began {clock(acceptance.began)}, {ended}.")
    hosts = sorted(acceptance.hosts, key=lambda host: (host.verdict.status.rank, natural(host.host)))
    yield _counts("Hosts by verdict", (Mark(host.verdict.status, host.verdict) for host in hosts), origin)
    taken = {step for host in hosts for step in host.steps}
    steps = [step.name for step in acceptance.steps if step.name in taken or step.state is not StepState.LEFT_OUT]
    steps += sorted(taken - set(steps))
    columns = ("Host", "Verdict", *steps, "Left after")
    rows: list[tuple[Cell, ...]] = []
    for host in hosts:
        marks = [Mark(host.steps[step], host.steps[step]) if step in host.steps else "" for step in steps]
        rows.append((host.host, Mark(host.verdict.status, host.verdict), *marks, host.left_after))
    yield Table("Hosts and steps", columns, rows, origin)
    gpus = [
        (host.host, host.serial, gpu.place, gpu.model, gpu.uuid, gpu.serial)
        for host in hosts
        if not host.verdict.accepts
        for gpu in host.gpus
    ]
    if gpus:
        columns = ("Host", "Its serial number", "Place", "Model", "UUID", "Serial number")
        yield Table("GPUs of hosts that are not accepted, for their vendor", columns, gpus, origin)


def _looked(looks: Sequence[Found]) -> Iterator[Block]:
    by_host: dict[str, list[Status]] = defaultdict(list)
    for finding in chain.from_iterable(one.findings for one in looks):
        if finding.host:
            by_host[finding.host].append(finding.status)
    marks = {host: Mark(worst(statuses), worst(statuses)) for host, statuses in by_host.items()}
    hosts = sorted(marks, key=lambda host: (marks[host].status.rank, natural(host)))
    if hosts:
        yield Text("A look at the hosts (`nodectl health`), no acceptance: nothing was measured under load for it.")
        yield _counts("Hosts by status", (marks[host] for host in hosts), looks[0].origin)
        yield Table("Hosts", ("Host", "Status"), [(host, marks[host]) for host in hosts], looks[0].origin)


def _counts(caption: str, marks: Iterable[Mark], origin: Origin) -> Table:
    counts = Counter(marks)
    rows = [(mark, Number(f"{count:,}", count / counts.total())) for mark, count in counts.items()]
    return Table(caption, ("Verdict", "Number"), rows, origin)


def findings_section(looks: Sequence[Found]) -> Section:
    """Return what was found, a fold for each check; what is fine is counted."""
    missing = "No host was looked at: `nodectl report` without `--no-hosts`."
    return Section("findings", "Findings", missing, tuple(chain.from_iterable(map(_findings, looks))))


def _findings(one: Found) -> Iterator[Block]:
    hosts = counted(len({finding.host for finding in one.findings}), "host")
    yield Text(f"{counted(len(one.findings), 'finding')} of {hosts}: {one.origin.text}.")
    ordered = sorted(one.findings, key=lambda finding: finding.status.rank)
    if ordered:
        yield _counts("Findings by status", (Mark(finding.status, finding.status) for finding in ordered), one.origin)
    wrong = [finding for finding in one.findings if finding.status not in _FINE]
    for of_check in grouped(wrong, lambda finding: (finding.status, finding.check)):
        first = of_check[0]
        table = findings_table(f"{first.check}, {first.status}", of_check, one.origin)
        more = f" (and {counted(len(table.rows) - 1, 'other value')})" if len(table.rows) > 1 else ""
        line = f"{first.check} on {clipped(_hosts_named(of_check), _LONGEST_NAMES)}: {first.actual}{more}"
        yield Fold(Mark(first.status, first.status), line, (table,), len(table.rows) <= _OPEN_ROWS)


def findings_table(caption: str, findings: Sequence[Finding], origin: Origin) -> Table:
    """Return a row for each thing said, with the hosts and subjects of which it is said."""
    columns = ("Hosts", "Status", "Check", "Subject", "Found", "Expected", "What to do", "Seen")
    said = attrgetter("status", "check", "actual", "expected", "action", "remedy")
    return Table(caption, columns, [_row(alike) for alike in grouped(findings, said)], origin)


def _row(alike: Sequence[Finding]) -> tuple[Cell, ...]:
    first = alike[0]
    subjects = few(list(dict.fromkeys(finding.subject for finding in alike if finding.subject)), _SUBJECTS)
    seen = list(dict.fromkeys(finding.evidence for finding in alike if finding.evidence))
    action = "" if first.action == _DO_NOTHING else first.action
    return (
        _hosts_named(alike),
        Mark(first.status, first.status),
        first.check,
        subjects,
        first.actual,
        first.expected,
        ": ".join(filter(None, [action, first.remedy])),
        few(seen, 1),
    )


def _hosts_named(findings: Sequence[Finding]) -> str:
    return fold(dict.fromkeys(host for finding in findings for host in finding.hosts or (finding.host,)))
