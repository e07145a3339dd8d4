"""A run of the playbooks as an operator sees it: progress while it goes, tallies and problems when it is over."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from nodectl.cli.terminal import note, result, safe, stderr_console

if TYPE_CHECKING:
    from nodectl.provision.events import ProvisionRun, TaskEvent
    from nodectl.provision.run import ProvisionRequest


def run_playbook(request: ProvisionRequest, names: list[str]) -> ProvisionRun:
    """Run it with progress on stderr."""
    from nodectl.provision.run import provision

    with _progress(names) as on_event:
        return provision(request, on_event)


@contextmanager
def _progress(names: list[str]) -> Iterator[Callable[[TaskEvent], None]]:
    """A live line a host on a terminal; else one line for each change and each problem."""
    if sys.stderr.isatty():
        with _live(names) as on_event:
            yield on_event
    else:
        yield _tell


def _tell(event: TaskEvent) -> None:
    if event.diff:
        note(f"{event.host}:\n{event.diff}")
    elif event.outcome in ("changed", "failed", "unreachable"):
        note(f"{event.host}  {event.outcome:11}  {event.task}")


@contextmanager
def _live(names: list[str]) -> Iterator[Callable[[TaskEvent], None]]:
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn

    columns = (SpinnerColumn(), TextColumn("{task.fields[host]}"), TextColumn("{task.completed:.0f} tasks"))
    with Progress(*columns, BarColumn(8), TextColumn("{task.description}"), console=stderr_console()) as progress:
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
    """The hosts' tallies for JSON."""
    return {
        name: {"ok": t.ok, "changed": t.changed, "failed": t.failed, "unreachable": t.unreachable}
        for name, t in run.hosts.items()
    }


def tell_messages(run: ProvisionRun) -> None:
    """Reports and problems to stderr, hosts that agree together."""
    for event, hosts in _grouped(run.reports):
        note(f"{hosts}: {event.text}")
    for event, hosts in _grouped(run.problems):
        note(f"{hosts}: {event.outcome} at '{event.task}': {event.text}")


def show_table(run: ProvisionRun) -> None:
    """The tallies as the result, hosts with the same ones together."""
    rows: dict[tuple[int, int, int, int], list[str]] = {}
    for name, t in run.hosts.items():
        rows.setdefault((t.failed, t.unreachable, t.changed, t.ok), []).append(name)
    lines = [(folded(names), ok, changed, failed, gone) for (failed, gone, changed, ok), names in rows.items()]
    width = max([len("hosts"), *(len(line[0]) for line in lines)])
    result(f"{'hosts':{width}}  {'ok':>5} {'changed':>8} {'failed':>7} {'unreachable':>12}")
    for names, ok, changed, failed, gone in lines:
        result(f"{names:{width}}  {ok:5} {changed:8} {failed:7} {gone:12}")
    note(f"run {run.run}")


def _grouped(events: tuple[TaskEvent, ...]) -> Iterator[tuple[TaskEvent, str]]:
    """Each different event once, with the hosts that it came from, folded."""
    groups: dict[tuple[str, str, str], list[TaskEvent]] = {}
    for event in events:
        groups.setdefault((event.outcome, event.task, event.text), []).append(event)
    for same in groups.values():
        yield same[0], folded([event.host for event in same])


def folded(names: Sequence[str]) -> str:
    """`gpu[01-08]`."""
    from nodectl.common.nodeset import fold

    return fold(list(names))


def become_password(wanted: bool) -> str | None:
    """The password that sudo wants on the hosts, asked for once."""
    import click

    return click.prompt("sudo password", hide_input=True, err=True) if wanted else None
