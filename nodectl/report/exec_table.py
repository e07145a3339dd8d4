"""Outputs of a command on many hosts: identical output once, the largest group of hosts first."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from nodectl.common.nodeset import fold
from nodectl.model.result import CommandResult, Outcome


def exec_table(results: Sequence[CommandResult]) -> str:
    """Return the outputs of the hosts that ran it, then a line for each host that did not; a remedy is said once."""
    failed = [result for result in results if result.outcome is not Outcome.RAN]
    return "\n".join([*_outputs(results), *map(_failure, failed), *_remedies(failed)])


def _outputs(results: Sequence[CommandResult]) -> list[str]:
    groups: dict[tuple[int, str, str, str], list[str]] = defaultdict(list)
    for result in results:
        if result.outcome is Outcome.RAN:
            groups[result.exit_status or 0, result.stdout, result.stderr, result.error].append(result.host)
    lines: list[str] = []
    for (status, stdout, stderr, error), hosts in sorted(groups.items(), key=lambda group: -len(group[1])):
        lines.append(_heading(fold(hosts), len(hosts), status, error))
        lines += [text.rstrip("\n") for text in (stdout, stderr) if text.strip("\n")]
    return lines


def _heading(hosts: str, count: int, status: int, error: str) -> str:
    words = [hosts, f"({count})" if count > 1 else "", f"exit status {status}" if status else "", error]
    return "--- " + "  ".join(word for word in words if word)


def _failure(result: CommandResult) -> str:
    return f"!!! {result.host}  {result.outcome}: {' '.join(result.error.split())}"


def _remedies(failed: Sequence[CommandResult]) -> list[str]:
    hosts_of: dict[str, list[str]] = defaultdict(list)
    for result in failed:
        if result.remedy:
            hosts_of[result.remedy].append(result.host)
    return [f"  try ({fold(hosts)}): {remedy}" for remedy, hosts in hosts_of.items()]
