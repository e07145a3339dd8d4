"""`nodectl provision`: options to one run of the playbooks, its progress, and its summary."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from nodectl.cli.app import App
from nodectl.cli.terminal import emit_json, note, result, safe, stderr_console

if TYPE_CHECKING:
    from nodectl.provision import ProvisionRun, TaskEvent


@click.command()
@click.option("--check", is_flag=True, help="Change nothing, and say what would change.")
@click.option("--diff", is_flag=True, help="Show what changes, line by line.")
@click.option("-t", "--tags", multiple=True, metavar="ROLE", help="Only these roles; may be repeated.")
@click.option("--skip-tags", multiple=True, metavar="ROLE", help="All but these roles.")
@click.option("--yes", is_flag=True, help="Do not ask before changing several hosts.")
@click.option("-K", "--ask-become-pass", is_flag=True, help="Ask for the password that sudo wants on the hosts.")
@click.pass_obj
def provision(
    app: App,
    check: bool,
    diff: bool,
    tags: tuple[str, ...],
    skip_tags: tuple[str, ...],
    yes: bool,
    ask_become_pass: bool,
) -> None:
    """Make the hosts what their profiles say; the same as `ansible-playbook playbooks/site.yml`."""
    from nodectl import provision as provisioning

    hosts = app.hosts
    if len(hosts) > 1 and not (check or yes) and sys.stdin.isatty():
        click.confirm(f"provision {len(hosts)} hosts ({_folded([host.name for host in hosts])})?", abort=True, err=True)
    _fill_lab_share([host.variables for host in hosts])
    request = provisioning.ProvisionRequest(
        playbook="site",
        inventory=app.inventory.sources,
        limit=app.limit,
        check=check,
        diff=diff,
        tags=tags,
        skip_tags=skip_tags,
        forks=min(app.forks, max(len(hosts), 1)),
        become_password=click.prompt("sudo password", hide_input=True, err=True) if ask_become_pass else None,
    )
    with _progress([host.name for host in hosts]) as on_event:
        run = provisioning.provision(request, on_event)
    _show(app, run)
    raise SystemExit(run.exit_status)


def _fill_lab_share(variables: list[Any]) -> None:
    """The play does the same; done here first, a long download is seen."""
    from nodectl.wheels import LAB_MOUNT, ensure_lab_share

    if any(str(host.get("nodectl_wheelhouse", "")).startswith(LAB_MOUNT) for host in variables):
        ensure_lab_share(note)


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


def _show(app: App, run: ProvisionRun) -> None:
    """Reports and problems to stderr, hosts that agree together; the tallies as the result."""
    for event, hosts in _grouped(run.reports):
        note(f"{hosts}: {event.text}")
    for event, hosts in _grouped(run.problems):
        note(f"{hosts}: {event.outcome} at '{event.task}': {event.text}")
    if app.json:
        tallies = {
            name: {"ok": t.ok, "changed": t.changed, "failed": t.failed, "unreachable": t.unreachable}
            for name, t in run.hosts.items()
        }
        emit_json("provision", {"run": run.run, "hosts": tallies})
        return
    rows: dict[tuple[int, int, int, int], list[str]] = {}
    for name, t in run.hosts.items():
        rows.setdefault((t.failed, t.unreachable, t.changed, t.ok), []).append(name)
    lines = [(_folded(names), ok, changed, failed, gone) for (failed, gone, changed, ok), names in rows.items()]
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
        yield same[0], _folded([event.host for event in same])


def _folded(names: list[str]) -> str:
    from nodectl.nodeset import fold

    return fold(names)
