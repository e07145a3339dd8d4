"""Findings as JUnit's XML, as CI systems read it: a suite a host, a case a finding."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from xml.etree import ElementTree as ET

from nodectl.model.finding import Finding
from nodectl.model.status import Status

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
