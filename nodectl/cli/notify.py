"""`nodectl notify`: Try the receivers of notifications, and show what was not delivered."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from typing import Any

import click

from nodectl.cli.app import App
from nodectl.cli.telling import desk_of
from nodectl.cli.terminal import note
from nodectl.common.process import operator
from nodectl.errors import UsageError
from nodectl.jobs.nodes import Answers, ask
from nodectl.jobs.rows import MessageRow
from nodectl.model.status import Status, exit_status
from nodectl.notify.settings import PAGE, documents
from nodectl.notify.tell import fleet_name
from nodectl.payload.notify.deliver import TRY_S, try_each
from nodectl.payload.notify.queue import compose_event
from nodectl.report.table import aligned

_ASK_S = 60.0


@click.group()
def notify() -> None:
    """Try the receivers that nodectl.toml names ([[notify]]), and show what was not delivered."""


@notify.command()
@click.option("--from-hosts", is_flag=True, help="Also send from each host, as jobs do.")
@click.argument("names", nargs=-1, metavar="[RECEIVER]...")
@click.pass_obj
def test(app: App, from_hosts: bool, names: tuple[str, ...]) -> None:
    """Send each receiver a test, once, and say what came of it.  Ends with 1 where one did not take it."""
    receivers = [one for one in app.receivers() if not names or one.name in names]
    if not receivers or set(names) - {one.name for one in receivers}:
        raise UsageError("nodectl.toml names no such receiver in [[notify]]", PAGE)
    event = compose_event(fleet_name(app.fleet), "test", f"test-{time.time_ns()}", "nodectl: a test", operator())
    here = [one for one in receivers if not one.on_node]
    rows = try_each(documents(here, travel=True), event)
    answers = Answers({})
    if from_hosts:
        told = documents(receivers, travel=True)
        stdin = json.dumps({"receivers": told, "event": event}).encode()
        answers = ask(
            app.transport, app.hosts, lambda host: ["notify_test", host.name], forks=app.forks,
            timeout_s=_ASK_S + len(receivers) * TRY_S, stdin=stdin, kind=MessageRow,
        )  # fmt: skip
    _show(app, rows, answers, tried=True)


@notify.command()
@click.pass_obj
def pending(app: App) -> None:
    """Show the messages that wait to be sent, here and on the hosts, or were given up; senders that died go on."""
    desk = desk_of(app)
    desk.send(0.0)
    answers = ask(
        app.transport, app.hosts, lambda _: ["untold"], forks=app.forks, timeout_s=_ASK_S, kind=MessageRow
    )  # fmt: skip
    _show(app, desk.queue.pending(), answers, tried=False)


def _show(app: App, here: Sequence[dict[str, Any]], answers: Answers, *, tried: bool) -> None:
    """Show messages of this machine and of the hosts; a test that was not delivered, or a mute host, is no success."""
    rows = [{"host": "", **row} for row in here]
    rows += [{"host": host, **row} for host, lines in answers.lines.items() for row in lines]
    table = [("RECEIVER", "FROM", "MESSAGE", "STATE", "WHY")]
    for row in rows:
        state = f"waits, tried {row['tries']} times" if row["waits"] else "given up" if row["why"] else "delivered"
        table.append((row["receiver"], row["host"] or "this machine", row["id"], state, row["why"]))
    app.show("notify", {"messages": rows}, aligned(table) if rows else "everything is delivered")
    for host, why in answers.problems.items():
        note(f"{host}: {why}")
    bad = [Status.FAILED] if tried and any(row["why"] for row in rows) else []
    if status := exit_status([*bad, *(Status.UNKNOWN for _ in answers.problems)]):
        raise SystemExit(status)
