"""The fleet at one sight: a verdict for each node, one cell a node and step, reasons with what to do, all findings."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from nodectl.common.counting import counted
from nodectl.common.few import few
from nodectl.common.natural import natural
from nodectl.common.nodeset import fold
from nodectl.model.acceptance import Acceptance, HostAcceptance, NodeVerdict, StepState, node_verdict
from nodectl.model.finding import Finding
from nodectl.model.status import Status, worst
from nodectl.report.findings import grouped
from nodectl.report.page.blocks import (
    Block,
    Cell,
    Fold,
    HostSearch,
    Mark,
    Nature,
    Number,
    Origin,
    Section,
    Strip,
    Strips,
    Table,
    Tally,
    Text,
)
from nodectl.report.page.content import Found

# so many hosts have a line each; of more those that are alike share one, and each has a cell in a picture
_MOST_LINES = 24
_NAMES_IN_SUMMARY = 4
# the search finds each of those whose names are cut off
_LONGEST_NAMES = 160
_HEALTH = "health"
_FINE = (Status.OK, Status.SKIPPED)
_TIME = "%Y-%m-%d %H:%M:%S"
_DO_NOTHING = "none"


@dataclass(frozen=True, slots=True)
class _Host:
    """A host's line: verdict, status by step, and what speaks against it."""

    name: str
    verdict: NodeVerdict
    steps: Mapping[str, Status]
    left_after: str
    findings: tuple[tuple[str, Finding], ...]


@dataclass(frozen=True, slots=True)
class _Fleet:
    hosts: tuple[_Host, ...]
    steps: tuple[str, ...]
    origin: Origin


def fleet_sections(acceptances: Sequence[Acceptance], looks: Sequence[Found]) -> Iterator[Section]:
    """Overview and verdicts of the latest acceptance, or of a look at the hosts where there is none."""
    latest = max(acceptances, key=lambda one: one.began, default=None)
    fleet = _accepted(latest) if latest else _looked(looks) if looks else None
    if fleet is None or not fleet.hosts:
        missing = "No host was judged: `nodectl accept`, or `nodectl report` without `--no-hosts`."
        yield Section("overview", "Fleet", (), missing)
        return
    yield Section("overview", "Fleet", tuple(_overview(fleet, latest)))
    others = [one for one in acceptances if one is not latest]
    yield Section("verdicts", "Verdicts and what to do", tuple(_verdicts(fleet, latest, others)))


def origin_of(acceptance: Acceptance) -> Origin:
    """Return where an acceptance's figures are from, as it says itself."""
    natures = {nature.value: nature for nature in Nature}
    return Origin(natures.get(acceptance.nature, Nature.UNTOLD), f"acceptance {acceptance.id}")


def _accepted(acceptance: Acceptance) -> _Fleet:
    seen: dict[str, list[tuple[str, Finding]]] = defaultdict(list)
    for one in acceptance.seen:
        if one.finding.status not in _FINE:
            for host in dict.fromkeys([one.finding.host, *one.finding.hosts]):
                seen[host].append((one.step, one.finding))
    hosts = tuple(_accepted_host(host, seen[host.host]) for host in acceptance.hosts)
    taken = {step for host in hosts for step in host.steps}
    planned = [step.name for step in acceptance.steps if step.name in taken or step.state is not StepState.LEFT_OUT]
    steps = (*planned, *sorted(taken - set(planned)))
    return _Fleet(tuple(sorted(hosts, key=_gravity)), steps, origin_of(acceptance))


def _accepted_host(host: HostAcceptance, seen: Iterable[tuple[str, Finding]]) -> _Host:
    reasons = tuple((one.step, one.finding) for one in host.reasons)
    findings = tuple(dict.fromkeys([*reasons, *seen]))
    return _Host(host.host, host.verdict, host.steps, host.left_after, findings)


def _looked(looks: Sequence[Found]) -> _Fleet:
    by_host: dict[str, list[Finding]] = defaultdict(list)
    for finding in (finding for one in looks for finding in one.findings if finding.host):
        by_host[finding.host].append(finding)
    hosts = []
    for name, findings in by_host.items():
        status = worst(finding.status for finding in findings)
        problems = tuple((_HEALTH, finding) for finding in findings if finding.status not in _FINE)
        hosts.append(_Host(name, node_verdict([status]), {}, "", problems))
    return _Fleet(tuple(sorted(hosts, key=_gravity)), (), looks[0].origin)


def _gravity(host: _Host) -> tuple[int, object]:
    return host.verdict.status.rank, natural(host.name)


def _word(verdict: NodeVerdict, accepted: bool) -> str:
    """Return the verdict's word, and the status's for a look at the hosts, which is no acceptance."""
    return verdict.value if accepted else verdict.status.value


def _overview(fleet: _Fleet, acceptance: Acceptance | None) -> Iterator[Block]:
    is_accept = acceptance is not None
    counts = Counter(host.verdict for host in fleet.hosts)
    yield Tally(tuple((Mark(one.status, _word(one, is_accept)), counts[one]) for one in NodeVerdict))
    if acceptance is not None:
        began, ended = _clock(acceptance.began), acceptance.ended
        took = f"until {_clock(ended)}" if ended is not None else "and is NOT complete"
        yield Text(f"Acceptance {acceptance.id}, level {acceptance.level}: began {began}, {took}.")
    else:
        yield Text("A look at the hosts (`nodectl health`), no acceptance: nothing was measured under load for it.")
    if len(fleet.hosts) > _MOST_LINES:
        yield _strips(fleet, is_accept=is_accept)
    yield _lines(fleet, is_accept=is_accept)
    if len(fleet.hosts) > _MOST_LINES:
        yield _search(fleet, is_accept=is_accept)


def _columns(fleet: _Fleet) -> tuple[str, ...]:
    return ("Verdict", *fleet.steps, "Left after")


def _cells(host: _Host, fleet: _Fleet, *, is_accept: bool) -> tuple[Cell, ...]:
    steps = (Mark(host.steps[step], host.steps[step].value) if step in host.steps else "" for step in fleet.steps)
    return (Mark(host.verdict.status, _word(host.verdict, is_accept)), *steps, host.left_after)


def _lines(fleet: _Fleet, *, is_accept: bool) -> Table:
    """Return a line for each host, or of many a line for all that are alike."""
    alike: dict[tuple[Cell, ...], list[str]] = defaultdict(list)
    for host in fleet.hosts:
        cells = _cells(host, fleet, is_accept=is_accept)
        alike[cells if len(fleet.hosts) > _MOST_LINES else (*cells, host.name)].append(host.name)
    width = len(fleet.steps) + 2
    shown = any(host.left_after for host in fleet.hosts)
    columns = ("Host", *_columns(fleet)) if shown else ("Host", *_columns(fleet)[:-1])
    rows = [(hosts_text(names), *cells[: width if shown else width - 1]) for cells, names in alike.items()]
    title = "Hosts and steps, those that are alike on one line" if len(fleet.hosts) > _MOST_LINES else "Hosts and steps"
    return Table(title, columns, rows, fleet.origin)


def hosts_text(names: Sequence[str]) -> str:
    """Return the one name, or how many there are with their names folded, cut to a line."""
    if len(names) == 1:
        return names[0]
    folded = fold(names)
    shown = folded if len(folded) <= _LONGEST_NAMES else f"{folded[:_LONGEST_NAMES]}…"
    return f"{counted(len(names), 'host')}: {shown}"


def _strips(fleet: _Fleet, *, is_accept: bool) -> Strips:
    hosts = sorted(fleet.hosts, key=lambda host: natural(host.name))
    verdicts = [(host.name, host.verdict.status) for host in hosts]
    labels = {one.status: _word(one, is_accept) for one in NodeVerdict}
    strips = [Strip("Verdict", tuple(status for _, status in verdicts), _counts(verdicts, labels))]
    if is_accept:
        for step in fleet.steps:
            statuses = [(host.name, host.steps.get(step)) for host in hosts]
            strips.append(Strip(step, tuple(status for _, status in statuses), _counts(statuses, {})))
    caption = "One cell a host and step, hosts in the order of their names"
    return Strips(caption, tuple(host.name for host in hosts), tuple(strips), fleet.origin)


def _counts(statuses: Sequence[tuple[str, Status | None]], labels: Mapping[Status, str]) -> str:
    """Return `2 failed (node[003,017]), 998 ok`."""
    names: dict[Status, list[str]] = defaultdict(list)
    for name, status in statuses:
        if status is not None:
            names[status].append(name)
    parts = [
        f"{len(names[status]):,} {labels.get(status, status.value)}"
        + (f" ({few(names[status], _NAMES_IN_SUMMARY)})" if status not in _FINE else "")
        for status in Status
        if names[status]
    ]
    return ", ".join(parts) or "no host took part"


def _search(fleet: _Fleet, *, is_accept: bool) -> HostSearch:
    texts: dict[str, int] = {}
    text_ids = []
    for host in fleet.hosts:
        problems = [_told(step, finding) for step, finding in host.findings]
        text_ids.append(tuple(texts.setdefault(text, len(texts)) for text in problems))
    hosts = [(host.name, *_cells(host, fleet, is_accept=is_accept)) for host in fleet.hosts]
    return HostSearch(("Host", *_columns(fleet)), hosts, text_ids, list(texts))


def _told(step: str, finding: Finding) -> str:
    where = f"{finding.check}: {finding.subject}" if finding.subject else finding.check
    wanted = f"; expected {finding.expected}" if finding.expected else ""
    remedy = f". Try: {finding.remedy}" if finding.remedy else ""
    return f"{finding.status}: {step}, {where}: {finding.actual}{wanted}{remedy}"


def _verdicts(fleet: _Fleet, acceptance: Acceptance | None, others: Sequence[Acceptance]) -> Iterator[Block]:
    """Return why: a line for each reason with the hosts that have it, and what the vendor asks for."""
    verdict_of = {host.name: host.verdict for host in fleet.hosts}
    step_of = {id(finding): step for host in fleet.hosts for step, finding in host.findings}
    all_of = [(host.name, finding) for host in fleet.hosts for _, finding in host.findings]
    hosts_of: dict[int, list[str]] = defaultdict(list)
    for name, finding in all_of:
        hosts_of[id(finding)].append(name)
    unique = {id(finding): finding for _, finding in all_of}

    def said(finding: Finding) -> tuple[object, ...]:
        verdicts = tuple(sorted({verdict_of[name] for name in hosts_of[id(finding)]}))
        return verdicts, step_of[id(finding)], finding.check, finding.subject, finding.actual, finding.remedy

    rows: list[tuple[Cell, ...]] = []
    for alike in grouped(list(unique.values()), said):
        first = alike[0]
        names = list(dict.fromkeys(name for finding in alike for name in hosts_of[id(finding)]))
        mark = Mark(first.status, first.status.value)
        what = f"{first.check}: {first.subject}" if first.subject else first.check
        rows.append((mark, fold(names), step_of[id(first)], what, first.actual, first.expected, what_to_do(first)))
    columns = ("Status", "Hosts", "Step", "What", "Found", "Expected", "What to do")
    if rows:
        yield Table("Reasons, the worst first", columns, rows, fleet.origin)
    else:
        yield Text("Nothing speaks against any host.")
    if acceptance is not None:
        yield _plan(acceptance, fleet.origin)
        yield from _gpus(acceptance, fleet.origin)
    if others:
        yield _earlier(others)


def what_to_do(finding: Finding) -> str:
    """Return the action where there is one, then the remedy."""
    action = "" if finding.action == _DO_NOTHING else finding.action
    return ": ".join(filter(None, [action, finding.remedy]))


def _plan(acceptance: Acceptance, origin: Origin) -> Table:
    rows: list[tuple[Cell, ...]] = [
        (
            step.name,
            step.about,
            step.scope,
            Number(f"{len(step.hosts):,}"),
            Number(_seconds(step.planned_s)),
            Number("" if step.took_s is None else _seconds(step.took_s)),
            f"{step.state.value}: {step.why}" if step.why else step.state.value,
        )
        for step in acceptance.steps
    ]
    columns = ("Step", "What it does", "Of", "Hosts", "Planned", "Took", "State")
    return Table("The plan, and how long its steps took", columns, rows, origin)


def _seconds(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def _gpus(acceptance: Acceptance, origin: Origin) -> Iterator[Table]:
    """Yield what a vendor asks for, of the hosts that are not accepted."""
    rows: list[tuple[Cell, ...]] = [
        (host.host, host.serial, gpu.place, gpu.model, gpu.uuid, gpu.serial)
        for host in acceptance.hosts
        if not host.verdict.accepts
        for gpu in host.gpus
    ]
    if rows:
        columns = ("Host", "Its serial number", "Place", "Model", "UUID", "Serial number")
        yield Table("GPUs of hosts that are not accepted, for their vendor", columns, rows, origin)


def _earlier(acceptances: Sequence[Acceptance]) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for one in sorted(acceptances, key=lambda one: -one.began):
        counts = Counter(host.verdict for host in one.hosts)
        verdicts = ", ".join(f"{counts[verdict]:,} {verdict}" for verdict in NodeVerdict if counts[verdict])
        rows.append((one.id, _clock(one.began), one.level, verdicts, origin_of(one).text))
    return Table("Earlier acceptances", ("Id", "Began", "Level", "Verdicts", "Of"), rows)


def _clock(seconds: float) -> str:
    return time.strftime(_TIME, time.localtime(seconds))


# so many folds are open from the start, of those with few lines
_OPEN, _FEW_LINES = 3, 6
_SUBJECTS = 6


def findings_section(looks: Sequence[Found]) -> Section:
    """Return what was found of the hosts, a fold for each check; what is fine is counted."""
    if not looks:
        return Section("findings", "Findings", (), "No host was looked at: `nodectl report` without `--no-hosts`.")
    return Section("findings", "Findings", tuple(chain.from_iterable(map(_blocks, looks))))


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
