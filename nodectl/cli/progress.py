"""A run of the playbooks as an operator sees it: progress while it goes, tallies and problems when it is over."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import Any

import click

from nodectl.cli.app import App
from nodectl.cli.terminal import emit_json, note, result, safe, terminal_width
from nodectl.common.nodeset import fold
from nodectl.provision.events import ProvisionRun, TaskEvent
from nodectl.provision.run import ProvisionRequest, provision

_CLEAR_LINE = "\r\x1b[K"


def run_playbook(app: App, playbook: str, names: Sequence[str] = (), **options: Any) -> ProvisionRun:
    """Run it on the fleet's hosts, or on those named, with progress on stderr; `options` as ProvisionRequest has."""
    limit = ",".join(names) or app.limit
    names = names or [host.name for host in app.hosts]
    forks = min(app.forks, max(len(names), 1))
    request = ProvisionRequest(playbook, app.inventory.sources, limit, forks=forks, access=app.access, **options)
    return play(request)


def play(request: ProvisionRequest) -> ProvisionRun:
    """Run the request: a line for each change, and on a terminal the name of the task that runs."""
    live = sys.stderr.isatty()
    if live:
        request.access.answers()  # before the line of the task, which would be drawn over the question
    changes = _Changes(live=live)
    try:
        return provision(request, changes.add)
    finally:
        changes.flush()


class _Changes:
    def __init__(self, *, live: bool) -> None:
        self._live = live
        self._hosts: dict[tuple[str, str], list[str]] = {}

    def add(self, event: TaskEvent) -> None:
        if event.outcome == "start":
            self.flush()
            if self._live:
                click.echo(safe(event.task)[: terminal_width() - 1], nl=False, err=True)
        elif event.diff:
            self._clear()
            note(f"{event.host}:\n{event.diff}")
        elif event.outcome in ("changed", "failed", "unreachable"):
            self._hosts.setdefault((event.outcome, event.task), []).append(event.host)

    def flush(self) -> None:
        self._clear()
        for (outcome, task), hosts in self._hosts.items():
            note(f"{fold(hosts)}  {outcome:11}  {task}")
        self._hosts.clear()

    def _clear(self) -> None:
        if self._live:
            click.echo(_CLEAR_LINE, nl=False, err=True)


def tallies(run: ProvisionRun) -> dict[str, dict[str, int]]:
    """Return the hosts' tallies for JSON."""
    return {
        name: {"ok": t.ok, "changed": t.changed, "failed": t.failed, "unreachable": t.unreachable}
        for name, t in run.hosts.items()
    }


def tell_messages(run: ProvisionRun) -> None:
    """Print reports and problems to stderr, hosts that agree together."""
    for event, hosts in _grouped(run.reports):
        for line in event.text.splitlines():
            note(f"{hosts}: {line}")
    for event, hosts in _grouped(run.problems):
        note(f"{hosts}: {event.outcome} at '{event.task}': {event.text}")


def show_run(app: App, name: str, run: ProvisionRun, **more: object) -> None:
    """Show how a run ended: its reports and problems, then the tallies as a table or as JSON with `more`."""
    tell_messages(run)
    if app.json:
        emit_json(name, {"run": run.run, "hosts": tallies(run), **more})
        return
    rows: dict[tuple[int, int, int], list[str]] = {}
    for host, t in run.hosts.items():
        rows.setdefault((t.changed, t.failed, t.unreachable), []).append(host)
    width = max([len("hosts"), *(len(fold(hosts)) for hosts in rows.values())])
    result(f"{'hosts':{width}}  changed  failed  unreachable")
    for (changed, failed, gone), hosts in rows.items():
        result(f"{fold(hosts):{width}}  {changed:7}  {failed:6}  {gone:11}")
    note(f"run {run.run}")


def _grouped(events: tuple[TaskEvent, ...]) -> Iterator[tuple[TaskEvent, str]]:
    groups: dict[tuple[str, str, str], list[TaskEvent]] = {}
    for event in events:
        groups.setdefault((event.outcome, event.task, event.text), []).append(event)
    for same in groups.values():
        yield same[0], fold(event.host for event in same)
