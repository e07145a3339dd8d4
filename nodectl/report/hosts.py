"""Hosts as tables: what each is, what a command printed there, what `doctor` found; hosts that agree share a line."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from nodectl.common.counting import counted
from nodectl.common.nodeset import fold
from nodectl.model.finding import Finding
from nodectl.model.result import CommandResult, Outcome
from nodectl.report.findings import findings_lines, numbers
from nodectl.report.table import aligned

Words = Callable[[str, object], str]


def facts_table(facts: Mapping[str, Mapping[str, object]], text_of: Words) -> str:
    """Return `subject  hosts  words`: hosts with the same words share a line, the largest group first."""
    groups: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for host, subjects in facts.items():
        for subject, value in subjects.items():
            groups[subject][text_of(subject, value)].append(host)
    rows = [
        (subject, fold(hosts), text)
        for subject, texts in groups.items()
        for text, hosts in sorted(texts.items(), key=lambda item: -len(item[1]))
        if text
    ]
    return aligned([("SUBJECT", "HOSTS", ""), *rows])


def exec_table(results: Sequence[CommandResult]) -> str:
    """Return the outputs of the hosts that ran it, then a line for each reason not to; a remedy is said once."""
    failed = [result for result in results if result.outcome is not Outcome.RAN]
    groups: dict[str, list[CommandResult]] = defaultdict(list)
    for result in failed:
        # without `user@address: `
        groups[f"{result.outcome}: {re.sub(r'^[^@ ]+@[^ ]+: ', '', ' '.join(result.error.split()))}"].append(result)
    lines = [
        f"!!! {fold(each.host for each in alike)}  "
        + (reason if len(alike) > 1 else f"{alike[0].outcome}: {' '.join(alike[0].error.split())}")
        for reason, alike in groups.items()
    ]
    hosts_of: dict[str, list[str]] = defaultdict(list)
    for result in failed:
        if result.remedy:
            hosts_of[result.remedy].append(result.host)
    remedies = [f"  try ({fold(hosts)}): {remedy}" for remedy, hosts in hosts_of.items()]
    return "\n".join([*_outputs(results), *lines, *remedies])


def _outputs(results: Sequence[CommandResult]) -> list[str]:
    groups: dict[tuple[int, str, str, str], list[str]] = defaultdict(list)
    for result in results:
        if result.outcome is Outcome.RAN:
            groups[result.exit_status or 0, result.stdout, result.stderr, result.error].append(result.host)
    lines: list[str] = []
    for (status, stdout, stderr, error), hosts in sorted(groups.items(), key=lambda group: -len(group[1])):
        count, failed = f"({len(hosts)})" if len(hosts) > 1 else "", f"exit status {status}" if status else ""
        lines.append("--- " + "  ".join(filter(None, [fold(hosts), count, failed, error])))
        lines += [text.rstrip("\n") for text in (stdout, stderr) if text.strip("\n")]
    return lines


def doctor_table(findings: Sequence[Finding], machine: str, *, everything: bool) -> str:
    """`machine` is the name under which findings are about this machine, and no host."""
    hosts = len({finding.host for finding in findings} - {machine})
    where = f"{machine} and {counted(hosts, 'host')}" if hosts else f"{machine}; no host was looked at"
    more = "" if everything else " (--all shows each)"
    # a key or an address of its own would give each host a line of its own
    alike = findings if everything else [replace(finding, evidence="") for finding in findings]
    lines = findings_lines(alike, everything=everything)
    return "\n".join([*lines, f"{numbers(findings)} on {where}{more}"])
