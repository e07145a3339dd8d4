"""Which hosts failed or recovered since the last look; the last look is kept in a small file for each fleet."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from nodectl.checks.judge import REACH
from nodectl.common.files import replace_file
from nodectl.model.finding import Finding
from nodectl.model.status import Status

_FAILED, _WELL = "failed", "well"


class Change(NamedTuple):
    """A host that failed, by these findings, or that recovered (none)."""

    host: str
    findings: tuple[Finding, ...]


def look(state: Path, fleet: str, findings: Iterable[Finding]) -> tuple[Change, ...]:
    """Return the changes since the fleet's last look and keep this one; OSError if that is impossible."""
    path = state / "events" / f"{hashlib.sha256(fleet.encode()).hexdigest()[:16]}.json"
    try:
        before = json.loads(path.read_bytes())
    except (FileNotFoundError, ValueError):
        before = {}
    changed = compare(before, findings)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    now = {change.host: _FAILED if change.findings else _WELL for change in changed}
    replace_file(path, json.dumps({**before, **now}))
    return tuple(change for change in changed if change.findings or change.host in before)


def compare(before: Mapping[str, str], findings: Iterable[Finding]) -> tuple[Change, ...]:
    """Return the hosts that differ from `before`.

    A host that does not answer has failed if it was well before and other hosts answer; else this machine's own network
    may be the cause. Other findings that are unknown change nothing.
    """
    by_host: dict[str, list[Finding]] = {}
    for finding in findings:
        by_host.setdefault(finding.host, []).append(finding)
    silent = {host: [row for row in rows if _is_silence(row)] for host, rows in by_host.items()}
    some_answer = not all(silent.values())
    changed = []
    for host, rows in by_host.items():
        failed = [row for row in rows if row.status is Status.FAILED]
        if silent[host] and some_answer and before.get(host) == _WELL:
            failed = silent[host]
        if failed and before.get(host) != _FAILED:
            changed.append(Change(host, tuple(failed)))
        elif not failed and not silent[host] and before.get(host) != _WELL:
            changed.append(Change(host, ()))
    return tuple(changed)


def _is_silence(finding: Finding) -> bool:
    return finding.check == REACH.id and finding.status is Status.UNKNOWN
