"""Findings of `doctor`: what is not fine with the command that mends it, then how much was looked at."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from nodectl.common.counting import counted
from nodectl.model.finding import Finding
from nodectl.report.findings import findings_lines, numbers


def doctor_table(findings: Sequence[Finding], machine: str, *, everything: bool, columns: int | None) -> str:
    """`machine` is the name under which findings are about this machine, and no host."""
    hosts = len({finding.host for finding in findings} - {machine})
    where = f"{machine} and {counted(hosts, 'host')}" if hosts else f"{machine}; no host was looked at"
    more = "" if everything else " (--all shows each)"
    # a key or an address of its own would give each host a line of its own
    alike = findings if everything else [replace(finding, evidence="") for finding in findings]
    lines = findings_lines(alike, everything=everything, columns=columns)
    return "\n".join([*lines, f"{numbers(findings)} on {where}{more}"])
