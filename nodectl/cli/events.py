"""What `health` and `accept` give to the `on_event` program of nodectl.toml; a failure of it is a note."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence

from nodectl.checks.judge import REACH
from nodectl.cli.terminal import note
from nodectl.common.counting import counted
from nodectl.common.files import replace_file
from nodectl.common.paths import state_dir
from nodectl.model.acceptance import Acceptance
from nodectl.model.finding import Finding
from nodectl.model.status import Status
from nodectl.payload.common.on_event import compose, run_hook


def report_health(argv: Sequence[str], fleet: str, findings: Iterable[Finding]) -> None:
    """Report each host that failed or recovered since the last look, which a small file for each fleet keeps.

    A host that does not answer has failed if others answer; else this machine's own network may be the cause.
    """
    if not argv:
        return
    failed: dict[str, list[Finding]] = {}
    for finding in findings:
        bad = failed.setdefault(finding.host, [])
        if finding.status is Status.FAILED or (finding.check == REACH.id and finding.status is Status.UNKNOWN):
            bad.append(finding)
    if all(any(row.check == REACH.id for row in bad) for bad in failed.values()):
        return
    try:
        before = _look(fleet, failed)
    except OSError as error:
        note(f"on_event: not run, since the last look cannot be read or kept: {error}")
        return
    for host, bad in failed.items():
        if bool(bad) != (host in before):
            event = "host_failed" if bad else "host_recovered"
            texts = [f"{row.check} {row.subject}".strip() + f": {row.actual}" for row in bad]
            summary = f"host {host} " + (f"failed: {'; '.join(texts)}" if bad else "recovered")
            checks = list(dict.fromkeys(row.check for row in bad))
            _run(argv, compose(event, summary, {"checks": checks}, host=host))


def report_acceptance(argv: Sequence[str], acceptance: Acceptance) -> None:
    """Report the verdicts of an acceptance."""
    if argv:
        verdicts = {one.host: str(one.verdict) for one in acceptance.hosts}
        bad = [one.host for one in acceptance.hosts if not one.verdict.accepts]
        summary = f"acceptance of {counted(len(verdicts), 'node')}: "
        summary += f"not accepted: {', '.join(bad)}" if bad else "all are accepted"
        details = {"acceptance": acceptance.id, "level": acceptance.level, "verdicts": verdicts}
        _run(argv, compose("acceptance_finished", summary, details))


def _look(fleet: str, failed: dict[str, list[Finding]]) -> set[str]:
    """Return the hosts that had failed at the fleet's last look, and keep this one."""
    path = state_dir() / "events" / f"{hashlib.sha256(fleet.encode()).hexdigest()[:16]}.json"
    try:
        before = set(json.loads(path.read_bytes()))
    except (FileNotFoundError, ValueError):
        before = set()
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    replace_file(path, json.dumps(sorted((before - set(failed)) | {host for host, bad in failed.items() if bad})))
    return before


def _run(argv: Sequence[str], event: bytes) -> None:
    if problem := run_hook(argv, event):
        note(f"on_event: {problem}")
