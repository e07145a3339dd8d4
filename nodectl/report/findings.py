"""Findings in every form: documents, tables of two screens, lists with remedies, one line, JUnit, what changed."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any
from xml.etree import ElementTree as ET

from nodectl.common.counting import counted
from nodectl.common.few import few
from nodectl.common.nodeset import fold
from nodectl.model.finding import Finding
from nodectl.model.status import Status, worst

# two screens of a terminal of 24 lines, less the count of all and the prompt
TWO_SCREENS = 46
HINT = "folded: --all shows each finding, with its remedy"
# this many checks that cannot tell, and give one reason, are one cause
_CHECKS_OF_A_CAUSE = 3
# how many different values of one check have lines of their own, if there is room, and if there is not
_VARIANTS = (8, 3, 1)
_LONGEST_SHORT = 220
_MOST_NAMES = 12
_SUBJECTS = 4


@dataclass(frozen=True, slots=True)
class _Group:
    """Findings that are told together: each variant says one thing of several subjects or hosts.

    `is_cause`: each variant is a reason for which the same checks cannot tell; `is_mixed`: which subject is on which
    host is not told.
    """

    variants: tuple[tuple[Finding, ...], ...]
    is_cause: bool = False
    is_mixed: bool = False

    @property
    def findings(self) -> list[Finding]:
        return [finding for variant in self.variants for finding in variant]


def folded(findings: Sequence[Finding], rows: int, *, remedies: bool = True) -> list[str]:
    """Return at most `rows` lines, the worst first; the last is HINT if a finding or its remedy is not among them."""
    groups = _groups(sorted(findings, key=lambda finding: finding.status.rank))
    for most in _VARIANTS:
        blocks = [_block(group, most, remedies=remedies) for group in groups]
        is_whole = all(len(group.variants) <= most and not group.is_mixed for group in groups)
        if sum(map(len, blocks)) + (not is_whole) <= rows:
            return [*(line for block in blocks for line in block), *(() if is_whole else (HINT,))]
    # remedies for as many of the worst as there is room for, a line for each of the others, and the rest by name
    shown = len(groups) if len(groups) < rows else rows - 1 - len(Status)
    rest = list(_rest(groups[shown:]))
    lines: list[str] = []
    for number, block in enumerate(blocks[:shown], start=1):
        fits = len(lines) + len(block) + shown - number + len(rest) < rows
        lines += block if fits else [_short(groups[number - 1])]
    return [*lines, *rest, HINT]


def _rest(groups: Sequence[_Group]) -> Iterator[str]:
    by_status: dict[Status, list[_Group]] = defaultdict(list)
    for group in groups:
        by_status[group.variants[0][0].status].append(group)
    for status, left in by_status.items():
        hosts = fold(dict.fromkeys(finding.host for group in left for finding in group.findings))
        checks = list(dict.fromkeys(finding.check for group in left for finding in group.findings))
        yield f"{status.upper()}  {hosts}  {counted(len(checks), 'more check')}: {few(checks, _MOST_NAMES)}"


def _groups(findings: Sequence[Finding]) -> list[_Group]:
    """In the order of their first finding: those whose causes are of the same checks, else those of one check."""
    causes = _common_causes(findings)
    groups: dict[object, list[Finding]] = defaultdict(list)
    for finding in findings:
        checks = causes.get(finding.actual) if finding.status is Status.UNKNOWN else None
        groups[checks or (finding.status, finding.check)].append(finding)
    return [_of_causes(alike) if isinstance(key, frozenset) else _of_check(alike) for key, alike in groups.items()]


def _of_causes(findings: Sequence[Finding]) -> _Group:
    return _Group(tuple(map(tuple, _by(findings, lambda finding: finding.actual))), is_cause=True, is_mixed=True)


def _common_causes(findings: Sequence[Finding]) -> dict[str, frozenset[str]]:
    """Reasons for which several checks could not tell, and those checks."""
    checks: dict[str, set[str]] = defaultdict(set)
    for finding in findings:
        if finding.status is Status.UNKNOWN and finding.actual:
            checks[finding.actual].add(finding.check)
    return {reason: frozenset(of_it) for reason, of_it in checks.items() if len(of_it) >= _CHECKS_OF_A_CAUSE}


def _of_check(findings: Sequence[Finding]) -> _Group:
    """Group findings of a check by what is said and the subjects that hosts share; one variant for many such sets."""
    is_mixed = False
    by_text = _by(findings, lambda finding: (finding.actual, finding.expected, finding.action, finding.remedy))
    variants: list[tuple[Finding, ...]] = []
    for alike in by_text:
        subjects = _by(alike, lambda finding: finding.host)
        by_subjects: dict[tuple[tuple[str, str], ...], list[Finding]] = defaultdict(list)
        for of_host in subjects:
            by_subjects[tuple((finding.subject, finding.evidence) for finding in of_host)] += of_host
        is_mixed = is_mixed or len(by_subjects) > _VARIANTS[0] or any(len(part) > _SUBJECTS for part in by_subjects)
        is_many = len(by_subjects) > _VARIANTS[0]
        variants += [tuple(alike)] if is_many else [tuple(part) for part in by_subjects.values()]
    return _Group(tuple(variants), is_mixed=is_mixed)


def _by(findings: Sequence[Finding], key: Callable[[Finding], object]) -> list[list[Finding]]:
    groups: dict[object, list[Finding]] = defaultdict(list)
    for finding in findings:
        groups[key(finding)].append(finding)
    return list(groups.values())


def _block(group: _Group, most: int, *, remedies: bool) -> list[str]:
    """Return a line for each variant and what to do; of more than `most` the first ones, and how many there are."""
    line = _of_cause if group.is_cause else _line
    shown = (
        sorted(group.variants, key=lambda variant: -len(variant))[:most]
        if len(group.variants) > most
        else group.variants
    )
    lines: list[str] = []
    for position, variant in enumerate(shown):
        follows = shown[position + 1] if position + 1 < len(shown) else None
        lines.append(_safe(line(variant)))
        if remedies and (follows is None or list(_more(follows)) != list(_more(variant))):
            lines += _more(variant)
    if len(group.variants) > most:
        shown_ids = set(map(id, shown))
        left = [finding for variant in group.variants if id(variant) not in shown_ids for finding in variant]
        hosts = fold(dict.fromkeys(finding.host for finding in left))
        what = _checks(left) if group.is_cause else group.variants[0][0].check + _others(left, shown)
        lines.append(_safe(f"    and {counted(len(left), 'more finding')} of {what} on {hosts}"))
    return lines


def _others(left: Sequence[Finding], shown: Sequence[Sequence[Finding]]) -> str:
    """Return what those that are not shown are about, if no line shows that: of several faults none goes unnamed."""
    named = {finding.subject for variant in shown for finding in variant}
    subjects = [subject for subject in dict.fromkeys(finding.subject for finding in left) if subject not in named]
    return f" ({few(list(filter(None, subjects)), _SUBJECTS)})" if any(subjects) else ""


def _of_cause(findings: Sequence[Finding]) -> str:
    hosts = fold(dict.fromkeys(finding.host for finding in findings))
    status, number = findings[0].status.upper(), counted(len(findings), "finding")
    return f"{status}  {hosts}  {number} of one cause: {findings[0].actual} ({_checks(findings)})"


def _checks(findings: Sequence[Finding]) -> str:
    return few(list(dict.fromkeys(finding.check for finding in findings)), _MOST_NAMES)


def _line(variant: Sequence[Finding]) -> str:
    finding, hosts = variant[0], fold(dict.fromkeys(finding.host for finding in variant))
    subjects = list(dict.fromkeys(finding.subject for finding in variant if finding.subject))
    name = f"{finding.check}: {few(subjects, _SUBJECTS)}" if subjects else finding.check
    text = f"{finding.status.upper()}  {hosts}  {name}: {finding.actual}"
    return text + (f"; expected {finding.expected}" if finding.expected else "")


def _short(group: _Group) -> str:
    first = max(group.variants, key=len)
    text, others = (_of_cause if group.is_cause else _line)(first), len(group.findings) - len(first)
    what = "these for other reasons" if group.is_cause else first[0].check
    more = f" (and {counted(others, 'more finding')} of {what})" if others else ""
    text, room = _safe(text), _LONGEST_SHORT - len(more) - 1
    return f"{text if len(text) <= room + 1 else f'{text[:room]}…'}{more}"


def _more(variant: Sequence[Finding]) -> Iterator[str]:
    """Yield what was seen, and what to do: each different text once, in few lines."""
    for word, texts in (
        ("seen", [finding.evidence for finding in variant if finding.evidence]),
        ("action", [finding.action for finding in variant if finding.action != "none"]),
        ("try", [finding.remedy for finding in variant if finding.remedy]),
    ):
        unique = list(dict.fromkeys(texts))
        if unique:
            more = f" (and {len(unique) - 1} more)" if len(unique) > 1 else ""
            yield _safe(f"    {word}: {unique[0]}{more}")


def _safe(text: str) -> str:
    # what a host printed is not to look like a finding of its own
    return text.replace("\n", r"\n")


_FINE = (Status.OK, Status.SKIPPED)
_MOST_IN_A_LINE = 8
_KEYS = ("host", "check", "subject", "status", "action", "expected", "actual", "remedy", "evidence")


def finding_document(finding: Finding) -> dict[str, str]:
    """Return the keys that `health` and `provision` show."""
    return {name: str(getattr(finding, name)) for name in _KEYS}


def whole_finding(finding: Finding) -> dict[str, Any]:
    """All fields of a finding, as `topology` shows them."""
    return {**asdict(finding), "status": finding.status.value, "hosts": list(finding.hosts)}


def findings_table(findings: Sequence[Finding], *, everything: bool = False) -> str:
    """Return what is not fine, folded into two screens (or each finding), then how many there are of each status."""
    return "\n".join([*findings_lines(findings, everything=everything), counts(findings)])


def findings_lines(findings: Sequence[Finding], *, everything: bool = False) -> list[str]:
    """Return the table without its count."""
    if everything:
        return [
            "\n".join([_safe(_line(alike)), *_more(alike)])
            for alike in grouped(findings, lambda finding: replace(finding, host="", kind="", hosts=()))
        ]
    return folded([finding for finding in findings if finding.status not in _FINE], TWO_SCREENS)


def grouped(findings: Sequence[Finding], alike: Callable[[Finding], object]) -> list[list[Finding]]:
    """Return the findings of which `alike` says the same, worst first."""
    return _by(sorted(findings, key=lambda finding: finding.status.rank), alike)


def findings_list(findings: Sequence[Finding], *, everything: bool = False) -> str:
    """Return a line for each thing found, worst first, and one for its remedy; for findings of a measurement.

    What is said alike of several hosts or paths is said once. More than two screens are folded as `health` does, unless
    `everything` is asked for, which folds nothing.
    """
    alike = grouped(findings, id if everything else _said)
    groups = [list(_told(group)) for group in alike]
    lines = [line for group in groups for line in group] if everything else _each_remedy_once(groups)
    return "\n".join(lines if everything or len(lines) <= TWO_SCREENS else folded(findings, TWO_SCREENS))


def _each_remedy_once(groups: Sequence[Sequence[str]]) -> list[str]:
    """Each thing, and what to do below the last of those that follow each other and call for the same."""
    lines: list[str] = []
    for (first, *more), following in pairwise([*groups, ()]):
        lines += [first] if more and more == list(following[1:]) else [first, *more]
    return lines


def _said(finding: Finding) -> tuple[object, ...]:
    is_of_host = finding.kind == "host" or not finding.subject
    return finding.status, finding.check, finding.actual, finding.remedy, is_of_host, is_of_host and finding.subject


def _told(alike: Sequence[Finding]) -> Iterator[str]:
    finding = alike[0]
    is_of_host = finding.kind == "host" or not finding.subject
    if is_of_host:
        hosts = finding.host if len(alike) == 1 else fold(dict.fromkeys(member.host for member in alike))
        about = ": ".join(filter(None, [hosts, finding.subject]))
    else:
        about = few(list(dict.fromkeys(member.subject for member in alike)))
    # what a host or a login says is not to look like a line of nodectl's own
    yield f"{finding.status}  {finding.check}  {about}: {finding.actual}".replace("\n", r"\n")
    if finding.remedy:
        yield f"  try: {finding.remedy}".replace("\n", r"\n")


def counts(findings: Sequence[Finding]) -> str:
    """Return `2 failed, 40 ok on 4 hosts`."""
    hosts = len({finding.host for finding in findings})
    return f"{numbers(findings)} on {counted(hosts, 'host')}"


def numbers(findings: Sequence[Finding]) -> str:
    """Return `2 failed, 40 ok`."""
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
    """Return what is not fine now and was not so before (+), and what is gone (-); empty if nothing changed."""
    lines = []
    for sign, ours, theirs in (("+", after, before), ("-", before, after)):
        former = {_place(finding) for finding in theirs if finding.status not in _FINE}
        new = [finding for finding in ours if finding.status not in _FINE and _place(finding) not in former]
        folded_lines = folded(new, TWO_SCREENS // 2, remedies=sign == "+")
        lines += [line if line.startswith(" ") or line == HINT else f"{sign} {line}" for line in folded_lines]
    return "\n".join(lines)


def _place(finding: Finding) -> tuple[object, ...]:
    return finding.host, finding.check, finding.subject, finding.status


def _name(finding: Finding) -> str:
    return f"{finding.check}: {finding.subject}" if finding.subject else finding.check


# all that XML 1.0 cannot hold, not even escaped
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit(findings: Sequence[Finding], *, time_s: float, strict: bool = False) -> str:
    """Failed is a failure, unknown an error, skipped a skip; a warning is told, and a failure where `strict`."""
    root = ET.Element("testsuites", name="nodectl health")
    by_host: dict[str, list[Finding]] = {}
    for finding in findings:
        by_host.setdefault(finding.host, []).append(finding)
    stamp = datetime.fromtimestamp(time_s, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    for host, its in by_host.items():
        suite = ET.SubElement(
            root, "testsuite", {"name": _clean(host), "timestamp": stamp, **_counts(its, strict=strict)}
        )
        for finding in its:
            _case(suite, finding, strict=strict)
    totals = _counts(findings, strict=strict)
    del totals["skipped"]  # which readers by Jenkins' schema (junit-10.xsd) take of a suite, and not of all
    root.attrib.update(totals)
    ET.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def _counts(findings: Sequence[Finding], *, strict: bool) -> dict[str, str]:
    statuses = [finding.status for finding in findings]
    failures = statuses.count(Status.FAILED) + (statuses.count(Status.WARNING) if strict else 0)
    numbers = {
        "tests": len(statuses),
        "failures": failures,
        "errors": statuses.count(Status.UNKNOWN),
        "skipped": statuses.count(Status.SKIPPED),
    }
    return {name: str(number) for name, number in numbers.items()}


def _case(suite: ET.Element, finding: Finding, *, strict: bool) -> None:
    name = f"{finding.check}: {finding.subject}" if finding.subject else finding.check
    case = ET.SubElement(suite, "testcase", classname=_clean(f"{finding.host}.{finding.check}"), name=_clean(name))
    kinds = {Status.FAILED: "failure", Status.UNKNOWN: "error", **({Status.WARNING: "failure"} if strict else {})}
    if finding.status is Status.SKIPPED:
        ET.SubElement(case, "skipped", message=_clean(finding.actual))
    elif kind := kinds.get(finding.status):
        problem = ET.SubElement(case, kind, type=finding.status.value, message=_clean(finding.actual))
        problem.text = _details(finding)
    elif finding.status is Status.WARNING:
        ET.SubElement(case, "system-out").text = f"warning\n{_details(finding)}"


def _details(finding: Finding) -> str:
    rows = ("expected", "actual", "action", "remedy", "evidence")
    return _clean("\n".join(f"{row}: {getattr(finding, row)}" for row in rows if getattr(finding, row)))


def _clean(text: str) -> str:
    return _NOT_XML.sub("\N{REPLACEMENT CHARACTER}", text)
