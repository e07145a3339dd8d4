"""`nodectl rollback`: Put back what stood before a run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import click

from nodectl.cli.app import App
from nodectl.cli.measuring import alone
from nodectl.cli.options import check_and_diff, option, option_group, over_others_option, takes, yes_option
from nodectl.cli.progress import run_playbook, show_run, tallies, tell_messages
from nodectl.cli.rights import require_root
from nodectl.cli.terminal import ask, emit_json, note, result
from nodectl.common.counting import counted
from nodectl.common.nodeset import fold
from nodectl.provision.events import ProvisionRun
from nodectl.provision.run import RUN_NAME
from nodectl.report.table import aligned

Plans = Mapping[str, Mapping[str, Any]]


@option_group
class _Options:
    to: str = option(
        "--to",
        "Go back to the state that RUN left, or to `start`, before nodectl's first change.",
        metavar="RUN",
        default="",
    )
    list_: bool = option("--list", "Show the runs that the hosts hold records of.")
    packages: bool = option("--packages", "Also take back the packages of the GPU driver.")


@click.command()
@takes(_Options)
@check_and_diff
@yes_option
@over_others_option
@click.pass_obj
def rollback(app: App, asked: _Options, check: bool, diff: bool, yes: bool, force: bool) -> None:
    """Put back what stood before the last run that changed something; the same as playbooks/rollback.yml."""
    if asked.to and not RUN_NAME.fullmatch(asked.to):
        raise click.BadParameter(
            f"{asked.to!r} is no name of a run, which begins with its time (20261124T181500Z-…), nor `start`; "
            "`nodectl rollback --list` shows them",
            param_hint="--to",
        )
    require_root(app)
    hosts = app.hosts
    if asked.list_:
        run = run_playbook(app, "runs")
        tell_messages(run)
        _show_runs(app, run)
        raise SystemExit(run.exit_status)
    options: dict[str, Any] = {
        "variables": {"rollback_to": asked.to, "rollback_packages": asked.packages},
    }
    if not (check or yes):
        look = run_playbook(app, "rollback", check=True, **options)
        if look.exit_status == 1:
            tell_messages(look)
            raise SystemExit(1)
        plans = plans_of(look)
        if not any(plan["changes"] for plan in plans.values()):
            _show(app, look, check)
            raise SystemExit(look.exit_status)
        question = f"roll back {counted(len(hosts), 'host')} ({fold(host.name for host in hosts)})?"
        ask(hosts, question, _plan_lines(plans), yes=yes)
    with alone(app, "rollback", force=force, check=check):
        run = run_playbook(app, "rollback", check=check, diff=diff, **options)
    _show(app, run, check)
    raise SystemExit(run.exit_status)


def plans_of(run: ProvisionRun) -> Plans:
    """Return, by host, what its way back is, or which runs it holds records of."""
    return {answer.host: answer.result["rollback"] for answer in run.answers if "rollback" in answer.result}


def _plan_lines(plans: Plans) -> list[str]:
    groups: dict[tuple[str, ...], list[str]] = {}
    for host, plan in plans.items():
        lines = [f"  {change['what']} {change['subject']}: {change['action']}" for change in plan["changes"]]
        head = f"runs taken back: {', '.join(plan['runs']) or 'none'}"
        groups.setdefault((head, *lines, *(f"  note: {text}" for text in plan["warnings"])), []).append(host)
    return [text for lines, hosts in groups.items() for text in (f"{fold(hosts)}: {lines[0]}", *lines[1:])]


def _show(app: App, run: ProvisionRun, check: bool) -> None:
    plans = plans_of(run)
    if check and not app.json:
        for line in _plan_lines(plans):
            note(line)
    if plans and not any(plan["runs"] for plan in plans.values()):
        note("there is nothing to take back: no host holds a record of such a run; see `nodectl rollback --list`")
    show_run(app, "rollback", run, rollback=plans)


def _show_runs(app: App, run: ProvisionRun) -> None:
    held = {host: plan["runs"] for host, plan in plans_of(run).items()}
    if app.json:
        emit_json("rollback", {"run": run.run, "hosts": tallies(run), "runs": held})
        return
    rows: dict[tuple[str, ...], list[str]] = {}
    for host, records in held.items():
        for record in records:
            rows.setdefault(_row(record), []).append(host)
    if not rows:
        if held:
            note(f"{fold(held)}: no record is held, nodectl changed nothing there")
        return
    lines = [(*row, fold(hosts)) for row, hosts in sorted(rows.items(), key=lambda item: item[0][0])]
    result(aligned([("run", "by", "profiles", "changed", "hosts"), *lines]))


def _row(record: Mapping[str, Any]) -> tuple[str, ...]:
    names = record.get("profiles", {})
    profiles = ", ".join(str(names[kind]) for kind in ("hardware", "stack", "tuning") if kind in names)
    changed = Counter(record["changed"])
    changes = [f"{count} {kind}" for kind, count in sorted(changed.items())]
    changes += ["not finished"] * (not record["settled"]) + ["waits for --packages"] * bool(record["left"])
    return record["run"], record["by"], profiles, ", ".join(changes)
