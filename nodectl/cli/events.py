"""What `health` and `accept` give to the `on_event` program of nodectl.toml; a failure of it is a note."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from nodectl.cli.terminal import note
from nodectl.common.counting import counted
from nodectl.common.nodeset import fold
from nodectl.common.paths import state_dir
from nodectl.health.events import look
from nodectl.model.acceptance import Acceptance
from nodectl.model.finding import Finding
from nodectl.payload.common.on_event import compose, run_hook

_SHOWN = 3


def report_health(argv: Sequence[str], fleet: str, findings: Iterable[Finding]) -> None:
    """Report each host that failed or recovered since the last look."""
    if not argv:
        return
    try:
        changes = look(state_dir(), fleet, findings)
    except OSError as error:
        note(f"on_event: not run, since the last look cannot be read or kept: {error}")
        return
    events = []
    for host, failed in changes:
        texts = [f"{row.check} {row.subject}".strip() + f": {row.actual}" for row in failed[:_SHOWN]]
        event, summary = ("host_failed", f"failed: {'; '.join(texts)}") if failed else ("host_recovered", "recovered")
        checks = list(dict.fromkeys(row.check for row in failed))
        events.append(compose(event, f"host {host} {summary}", {"checks": checks}, host=host))
    _run(argv, events)


def report_acceptance(argv: Sequence[str], acceptance: Acceptance) -> None:
    """Report the verdicts of an acceptance."""
    if not argv:
        return
    counts = Counter(str(one.verdict) for one in acceptance.hosts)
    summary = f"acceptance of {counted(len(acceptance.hosts), 'node')}: "
    summary += ", ".join(f"{count} {verdict}" for verdict, count in sorted(counts.items()))
    if bad := [one.host for one in acceptance.hosts if not one.verdict.accepts]:
        summary += f"; not accepted: {fold(bad)}"
    verdicts = {one.host: str(one.verdict) for one in acceptance.hosts}
    details = {"acceptance": acceptance.id, "level": acceptance.level, "verdicts": verdicts}
    _run(argv, [compose("acceptance_finished", summary, details)])


def _run(argv: Sequence[str], events: Sequence[bytes]) -> None:
    for number, event in enumerate(events, start=1):
        if problem := run_hook(argv, event):
            left = len(events) - number
            note(f"on_event: {problem}" + (f"; {counted(left, 'further event')} not sent" if left else ""))
            return
