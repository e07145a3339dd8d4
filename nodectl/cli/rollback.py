"""`nodectl rollback`: Put back what stood before a run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from nodectl.cli.app import App
from nodectl.cli.progress import become_password, folded, run_playbook, show_table, tallies, tell_messages
from nodectl.cli.question import ask
from nodectl.cli.terminal import emit_json, note, result

if TYPE_CHECKING:
    from nodectl.provision.events import ProvisionRun
    from nodectl.provision.run import ProvisionRequest

Plans = Mapping[str, Mapping[str, Any]]


@click.command()
@click.option("--to", metavar="RUN", default="", help="The state as RUN left it, or `start`: before nodectl came.")
@click.option("--list", "list_", is_flag=True, help="Show the runs that the hosts hold records of.")
@click.option("--packages", is_flag=True, help="Also take the packages of the GPU driver back.")
@click.option("--check", is_flag=True, help="Change nothing, and say what would change.")
@click.option("--diff", is_flag=True, help="Show what changes, line by line.")
@click.option("--yes", is_flag=True, help="Do not ask before changing several hosts.")
@click.option("-K", "--ask-become-pass", is_flag=True, help="Ask for the password that sudo wants on the hosts.")
@click.pass_obj
def rollback(
    app: App, to: str, list_: bool, packages: bool, check: bool, diff: bool, yes: bool, ask_become_pass: bool
) -> None:
    """Put back what stood before the last run that changed something; the same as playbooks/rollback.yml."""
    _check_name(to)
    hosts = app.hosts
    names = [host.name for host in hosts]
    password = become_password(ask_become_pass)
    variables = {"rollback_to": to, "rollback_packages": packages}
    if list_:
        run = run_playbook(_request(app, "runs", password), names)
        tell_messages(run)
        _show_runs(app, run)
        raise SystemExit(run.exit_status)
    if len(hosts) > 1 and not (check or yes):
        look = run_playbook(_request(app, "rollback", password, check=True, variables=variables), names)
        if look.exit_status == 1:
            tell_messages(look)
            raise SystemExit(1)
        plans = _plans(look)
        if not any(plan["changes"] for plan in plans.values()):
            _show(app, look, check)
            raise SystemExit(look.exit_status)
        ask(hosts, f"roll back {len(hosts)} hosts ({folded(names)})?", _plan_lines(plans), yes=yes)
    request = _request(app, "rollback", password, check=check, diff=diff, variables=variables)
    run = run_playbook(request, names)
    _show(app, run, check)
    raise SystemExit(run.exit_status)


def _check_name(to: str) -> None:
    """Refused here, before any host is asked."""
    from nodectl.provision.run import RUN_NAME

    if to and not RUN_NAME.fullmatch(to):
        raise click.BadParameter(f"{to!r} is no name of a run; `nodectl rollback --list` shows them", param_hint="--to")


def _request(app: App, playbook: str, password: str | None, **options: Any) -> ProvisionRequest:
    from nodectl.provision.run import ProvisionRequest

    forks = min(app.forks, max(len(app.hosts), 1))
    sources = app.inventory.sources
    return ProvisionRequest(playbook, sources, app.limit, forks=forks, become_password=password, **options)


def _plans(run: ProvisionRun) -> dict[str, Mapping[str, Any]]:
    """Each host's last word on its way back."""
    return {answer.host: answer.result["rollback"] for answer in run.answers if "rollback" in answer.result}


def _plan_lines(plans: Plans) -> list[str]:
    """What changes, hosts with the same way back together."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for host, plan in plans.items():
        lines = [f"  {change['what']} {change['subject']}: {change['action']}" for change in plan["changes"]]
        head = f"runs taken back: {', '.join(plan['runs']) or 'none'}"
        groups.setdefault((head, *lines, *(f"  note: {text}" for text in plan["warnings"])), []).append(host)
    return [text for lines, hosts in groups.items() for text in (f"{folded(hosts)}: {lines[0]}", *lines[1:])]


def _show(app: App, run: ProvisionRun, check: bool) -> None:
    plans = _plans(run)
    if check and not app.json:
        for line in _plan_lines(plans):
            note(line)
    tell_messages(run)
    if app.json:
        emit_json("rollback", {"run": run.run, "hosts": tallies(run), "rollback": plans})
        return
    if plans and not any(plan["runs"] for plan in plans.values()):
        note("nothing to take back: no host holds a record of such a run; see `nodectl rollback --list`")
    show_table(run)


def _show_runs(app: App, run: ProvisionRun) -> None:
    """A line a run: when, who, profiles, what changed, on which hosts."""
    held = {answer.host: answer.result["rollback"]["runs"] for answer in run.answers if "rollback" in answer.result}
    if app.json:
        emit_json("rollback", {"run": run.run, "hosts": tallies(run), "runs": held})
        return
    rows: dict[tuple[str, ...], list[str]] = {}
    for host, records in held.items():
        for record in records:
            rows.setdefault(_row(record), []).append(host)
    if not rows:
        note("no host holds a record: nodectl changed nothing there")
        return
    lines = [(*row, folded(hosts)) for row, hosts in sorted(rows.items(), key=lambda item: _order(item[0][0]))]
    _columns([("run", "by", "profiles", "changed", "hosts"), *lines])


def _order(name: str) -> tuple[bool, str]:
    return name != "start", name


def _row(record: Mapping[str, Any]) -> tuple[str, ...]:
    names = record.get("profiles", {})
    profiles = ", ".join(str(names[kind]) for kind in ("hardware", "stack", "tuning") if kind in names)
    changed = Counter(record["changed"])
    words = [f"{count} {kind}" for kind, count in sorted(changed.items())]
    words += ["not finished"] * (not record["settled"]) + ["waits for --packages"] * bool(record["left"])
    return record["run"], record["by"], profiles, ", ".join(words)


def _columns(rows: Sequence[Sequence[str]]) -> None:
    widths = [max(len(row[index]) for row in rows) for index in range(len(rows[0]))]
    for row in rows:
        result("  ".join(f"{cell:{width}}" for cell, width in zip(row, widths, strict=True)).rstrip())
