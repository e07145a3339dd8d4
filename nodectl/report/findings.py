"""Findings in every form: documents, tables of two screens with remedies, one line, JUnit, what changed."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any
from xml.etree import ElementTree as ET

from nodectl.common.counting import counted
from nodectl.common.few import clipped, few
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
_FINE = (Status.OK, Status.SKIPPED)
_MOST_IN_A_LINE = 8
_KEYS = ("host", "check", "subject", "status", "action", "expected", "actual", "remedy", "evidence")

# findings of which one thing is said, of the same subjects of each host
Variant = list[Finding]


def finding_document(finding: Finding) -> dict[str, str]:
    """Return the keys that `health` and `provision` show."""
    return {name: str(getattr(finding, name)) for name in _KEYS}


def whole_finding(finding: Finding) -> dict[str, Any]:
    """All fields of a finding, as `topology` shows them."""
    return {**asdict(finding), "status": finding.status.value, "hosts": list(finding.hosts)}


def findings_table(findings: Sequence[Finding], *, everything: bool = False) -> str:
    """Return what is not fine, folded into two screens (or each finding), then how many there are of each status."""
    return "\n".join([*findings_lines(findings, everything=everything), counts(findings)])


def findings_text(findings: Sequence[Finding], *, everything: bool = False) -> str:
    """Return the table without its count, as text."""
    return "\n".join(findings_lines(findings, everything=everything))


def findings_lines(findings: Sequence[Finding], *, everything: bool = False) -> list[str]:
    """Return the lines of the table without its count."""
    if everything:
        alike = grouped(findings, lambda finding: (_said(finding), finding.subject, finding.evidence))
        return ["\n".join([_line(variant), *_more(variant)]) for variant in alike]
    return folded([finding for finding in findings if finding.status not in _FINE], TWO_SCREENS)


def folded(findings: Sequence[Finding], rows: int, *, remedies: bool = True) -> list[str]:
    """Return at most `rows` lines, the worst first; the last is HINT if one of them does not say all."""
    groups = list(_groups(findings).values())
    for most in _VARIANTS:
        blocks = [_block(group, most, remedies=remedies) for group in groups]
        lines = [line for block in blocks for line in block]
        is_whole = all(len(group) <= most and all(map(_is_whole, group)) for group in groups)
        if len(lines) + (not is_whole) <= rows:
            return [*lines, *(() if is_whole else (HINT,))]
    # a line for each of the worst, and the rest by name
    room = rows - 1 - len(Status)
    return [*(clipped(block[0], _LONGEST_SHORT) for block in blocks[:room]), *_rest(groups[room:]), HINT]


def grouped(findings: Sequence[Finding], alike: Callable[[Finding], object]) -> list[list[Finding]]:
    """Return the findings of which `alike` says the same, worst first."""
    groups: dict[object, list[Finding]] = defaultdict(list)
    for finding in sorted(findings, key=lambda finding: finding.status.rank):
        groups[alike(finding)].append(finding)
    return list(groups.values())


def _said(finding: Finding) -> tuple[object, ...]:
    """Return what is said of any host: a remedy may name it."""
    remedy = _of_hosts(finding.remedy, finding.host, "HOST")
    return finding.status, finding.check, finding.actual, finding.expected, finding.action, remedy


def _of_hosts(remedy: str, host: str, hosts: str) -> str:
    return re.sub(rf"(?<![\w.-]){re.escape(host)}(?![\w.-])", lambda _: hosts, remedy) if host else remedy


def _groups(findings: Sequence[Finding]) -> Mapping[object, list[Variant]]:
    """Return the variants by status and check; what several checks cannot tell for one reason is one variant."""
    checks: dict[str, set[str]] = defaultdict(set)
    for finding in findings:
        if finding.status is Status.UNKNOWN and finding.actual:
            checks[finding.actual].add(finding.check)
    causes = {reason for reason, of_it in checks.items() if len(of_it) >= _CHECKS_OF_A_CAUSE}
    groups: dict[object, list[Variant]] = defaultdict(list)
    by_subjects: dict[object, Variant] = {}
    for alike in grouped(findings, lambda finding: (finding.host, _said(finding))):
        first = alike[0]
        is_caused = first.status is Status.UNKNOWN and first.actual in causes
        group: object = first.actual if is_caused else (first.status, first.check)
        key = group if is_caused else (_said(first), *(finding.subject for finding in alike))
        if key not in by_subjects:
            by_subjects[key] = []
            groups[group].append(by_subjects[key])
        by_subjects[key] += alike
    return groups


def _block(group: Sequence[Variant], most: int, *, remedies: bool) -> list[str]:
    """Return a line for each variant and what to do; of more than `most` the first ones, and how many there are."""
    shown = sorted(group, key=lambda variant: -len(variant))[:most] if len(group) > most else group
    lines: list[str] = []
    for variant, following in zip(shown, [*shown[1:], None], strict=True):
        lines.append(_line(variant))
        if remedies and (following is None or list(_more(following)) != list(_more(variant))):
            lines += _more(variant)
    left = [finding for variant in group if not any(variant is one for one in shown) for finding in variant]
    if left:
        hosts = fold(dict.fromkeys(finding.host for finding in left))
        named = {finding.subject for variant in shown for finding in variant}
        subjects = [subject for subject in dict.fromkeys(finding.subject for finding in left) if subject not in named]
        others = f" ({few(subjects, _SUBJECTS)})" if any(subjects) else ""
        lines.append(_safe(f"    and {counted(len(left), 'more finding')} of {left[0].check}{others} on {hosts}"))
    return lines


def _rest(groups: Sequence[Sequence[Variant]]) -> Iterator[str]:
    findings = [finding for group in groups for variant in group for finding in variant]
    for alike in grouped(findings, lambda finding: finding.status):
        hosts = fold(dict.fromkeys(finding.host for finding in alike))
        checks = list(dict.fromkeys(finding.check for finding in alike))
        status = alike[0].status.upper()
        yield f"{status}  {hosts}  {counted(len(checks), 'more check')}: {few(checks, _MOST_NAMES)}"


def _is_whole(variant: Variant) -> bool:
    checks, subjects = ({getattr(finding, name) for finding in variant} for name in ("check", "subject"))
    return len(checks) == 1 and len(subjects) <= _SUBJECTS


def _line(variant: Variant) -> str:
    finding, hosts = variant[0], fold(dict.fromkeys(finding.host for finding in variant))
    checks = list(dict.fromkeys(finding.check for finding in variant))
    if len(checks) > 1:
        cause = f"{counted(len(variant), 'finding')} of one cause: {finding.actual} ({few(checks, _MOST_NAMES)})"
        return _safe(f"{finding.status.upper()}  {hosts}  {cause}")
    subjects = list(dict.fromkeys(finding.subject for finding in variant if finding.subject))
    name = f"{finding.check}: {few(subjects, _SUBJECTS)}" if subjects else finding.check
    text = f"{finding.status.upper()}  {hosts}  {name}: {finding.actual}"
    return _safe(text + (f"; expected {finding.expected}" if finding.expected else ""))


def _more(variant: Variant) -> Iterator[str]:
    first, pattern = variant[0], ",".join(dict.fromkeys(finding.host for finding in variant))
    for word, texts in (
        ("seen", [finding.evidence for finding in variant if finding.evidence]),
        ("action", [finding.action for finding in variant if finding.action != "none"]),
        ("try", [_of_hosts(first.remedy, first.host, pattern)] if first.remedy else []),
    ):
        unique = list(dict.fromkeys(texts))
        if unique:
            more = f" (and {len(unique) - 1} more)" if len(unique) > 1 else ""
            yield _safe(f"    {word}: {unique[0]}{more}")


def _safe(text: str) -> str:
    # what a host printed is not to look like a finding of its own
    return text.replace("\n", r"\n")


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
    name = _clean(_name(finding))
    case = ET.SubElement(suite, "testcase", classname=_clean(f"{finding.host}.{finding.check}"), name=name)
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
