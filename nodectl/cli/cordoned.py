"""Cordoned hosts and commands that put work on hosts: left out, and said; taken in where that is asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import click

from nodectl.cli.app import App
from nodectl.cli.measuring import note_not_kept
from nodectl.cli.terminal import note
from nodectl.common.counting import counted
from nodectl.common.paths import state_dir
from nodectl.common.process import operator
from nodectl.errors import UnreachableError, UsageError
from nodectl.ledger.history.database import FILE, HistoryError
from nodectl.model.host import Host

if TYPE_CHECKING:
    from nodectl.ledger.store import Event
    from nodectl.model.acceptance import Acceptance

_SHOWN = 16
_NAME = "--include-cordoned"


def _narrow(ctx: click.Context, _: click.Parameter, include: bool) -> None:
    app = ctx.find_object(App)
    if app is not None:
        app.narrow = note_cordoned if include else _without_cordoned


# a command that has it is given hosts without those that are cordoned
include_cordoned_option = click.option(
    _NAME,
    is_flag=True,
    callback=_narrow,
    expose_value=False,
    help="Take in hosts that are cordoned (`nodectl ledger`).",
)


def _without_cordoned(app: App, hosts: Sequence[Host]) -> tuple[Host, ...]:
    """Return the hosts that are not cordoned, and name the others on stderr; UsageError if none is left."""
    try:
        holds = _cordoned(app, hosts)
    except HistoryError as error:
        raise UnreachableError(
            f"which hosts are cordoned cannot be told: {error.message}", f"{error.remedy}; or {_NAME} here"
        ) from error
    _say("left out", holds)
    left = tuple(host for host in hosts if host.name not in holds)
    if holds and not left:
        first = next(iter(holds))
        raise UsageError(
            f"nothing is left: {counted(len(holds), 'host is', 'hosts are')} cordoned",
            f"nodectl accept --include-cordoned -l {first}, then nodectl ledger return {first}; or {_NAME} here",
        )
    return left


def note_cordoned(app: App, hosts: Sequence[Host], what: str = "taken in all the same") -> tuple[Host, ...]:
    """Say which of the hosts are cordoned, or that it cannot be told; return all of them."""
    try:
        _say(what, _cordoned(app, hosts))
    except HistoryError as error:
        note(f"nodectl: which hosts are cordoned cannot be told: {error.message}\n  try: {error.remedy}")
    return tuple(hosts)


def keep_in_ledger(app: App, acceptance: Acceptance, *, cordon: bool) -> None:
    """Keep what an acceptance says; its rejected hosts are cordoned, or the command that does so is shown."""
    from nodectl.ledger.document import suggested

    try:
        with app.ledger() as ledger:
            ledger.record(acceptance)
            already = ledger.cordoned(row.host for row in acceptance.hosts)
            for one in suggested(acceptance):
                if cordon and one.host not in already:
                    ledger.cordon(one.host, one.reason, operator())
                    note(f"cordoned: {one.host}: {one.reason}")
                elif one.host not in already:
                    note(f"to leave {one.host} out of all work: {one.command}")
    except HistoryError as error:
        note_not_kept(error)


def _cordoned(app: App, hosts: Sequence[Host]) -> Mapping[str, Sequence[Event]]:
    path = state_dir() / FILE
    if path.is_char_device() or not path.exists():
        return {}
    with app.ledger() as ledger:
        return ledger.cordoned(host.name for host in hosts)


def _say(what: str, holds: Mapping[str, Sequence[Event]]) -> None:
    lines = ["; ".join(cordon.text for cordon in cordons) for cordons in holds.values()]
    for line in lines[:_SHOWN]:
        note(f"{what}: {' '.join(line.split())}")
    if len(lines) > _SHOWN:
        note(f"{what}: {len(lines) - _SHOWN} more that are cordoned: nodectl ledger list")
