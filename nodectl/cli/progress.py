"""A run of the playbooks as an operator sees it: progress while it goes, tallies and problems when it is over."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from nodectl.cli.app import App
from nodectl.cli.terminal import note, result, safe
from nodectl.common.nodeset import fold
from nodectl.provision.events import ProvisionRun, TaskEvent
from nodectl.provision.run import ProvisionRequest, provision


def run_playbook(app: App, playbook: str, names: Sequence[str] = (), **options: Any) -> ProvisionRun:
    """Run it on the fleet's hosts, or on those named, with progress on stderr; `options` as ProvisionRequest has."""
    limit = ",".join(names) or app.limit
    names = names or [host.name for host in app.hosts]
    forks = min(app.forks, max(len(names), 1))
    request = ProvisionRequest(playbook, app.inventory.sources, limit, forks=forks, access=app.access, **options)
    return play(request, names)


def play(request: ProvisionRequest, names: Sequence[str]) -> ProvisionRun:
    """Run the request on the hosts of these names: on a terminal a live line a host, else a line for each change."""
    if not sys.stderr.isatty():
        changes = _Changes()
        try:
            return provision(request, changes.add)
        finally:
            changes.flush()
    request.access.answers()  # asked for before the live lines, which would be drawn over the question
    with _live(names) as on_event:
        return provision(request, on_event)


class _Changes:
    """Prints a line for each task that changed a host or failed, after all hosts have run it."""

    def __init__(self) -> None:
        self._hosts: dict[tuple[str, str], list[str]] = {}

    def add(self, event: TaskEvent) -> None:
        if event.outcome == "start":
            self.flush()
        elif event.diff:
            note(f"{event.host}:\n{event.diff}")
        elif event.outcome in ("changed", "failed", "unreachable"):
            self._hosts.setdefault((event.outcome, event.task), []).append(event.host)

    def flush(self) -> None:
        for (outcome, task), hosts in self._hosts.items():
            note(f"{fold(hosts)}  {outcome:11}  {task}")
        self._hosts.clear()


@contextmanager
def _live(names: Sequence[str]) -> Iterator[Callable[[TaskEvent], None]]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn

    columns = (SpinnerColumn(), TextColumn("{task.fields[host]}"), TextColumn("{task.completed:.0f} tasks"))
    console = Console(stderr=True)
    with Progress(*columns, BarColumn(8), TextColumn("{task.description}"), console=console) as progress:
        rows = {name: progress.add_task("", host=name, total=None) for name in names}
        current = progress.add_task("", host="", total=None, visible=len(names) > 1)

        def on_event(event: TaskEvent) -> None:
            if event.outcome == "start":
                progress.update(current, description=event.task)
            elif event.diff:
                progress.console.print(safe(f"{event.host}:\n{event.diff}"), markup=False, highlight=False)
            elif event.host in rows:
                progress.update(rows[event.host], advance=1, description=f"{event.outcome}  {event.task}")

        yield on_event


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


def show_table(run: ProvisionRun) -> None:
    """Print the tallies as the result, hosts with the same ones together."""
    rows: dict[tuple[int, int, int], list[str]] = {}
    for name, t in run.hosts.items():
        rows.setdefault((t.failed, t.unreachable, t.changed), []).append(name)
    lines = [(fold(names), changed, failed, gone) for (failed, gone, changed), names in rows.items()]
    width = max([len("hosts"), *(len(line[0]) for line in lines)])
    result(f"{'hosts':{width}}  changed  failed  unreachable")
    for hosts, changed, failed, gone in lines:
        result(f"{hosts:{width}}  {changed:7}  {failed:6}  {gone:11}")
    note(f"run {run.run}")


def _grouped(events: tuple[TaskEvent, ...]) -> Iterator[tuple[TaskEvent, str]]:
    """Each different event once, with the hosts that it came from, folded."""
    groups: dict[tuple[str, str, str], list[TaskEvent]] = {}
    for event in events:
        groups.setdefault((event.outcome, event.task, event.text), []).append(event)
    for same in groups.values():
        yield same[0], fold(event.host for event in same)
