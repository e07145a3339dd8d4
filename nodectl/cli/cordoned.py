"""Cordoned hosts and commands that put work on hosts: left out, and said; taken in where that is asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

from nodectl.cli.app import App
from nodectl.cli.measuring import note_not_kept
from nodectl.cli.terminal import note
from nodectl.common.counting import counted
from nodectl.common.paths import state_dir
from nodectl.common.process import operator
from nodectl.errors import UsageError
from nodectl.ledger.history.database import FILE, HistoryError
from nodectl.model.host import Host

if TYPE_CHECKING:
    from nodectl.ledger.events import Hold, Recognised
    from nodectl.ledger.store import Ledger
    from nodectl.model.acceptance import Acceptance, Part
    from nodectl.probes.quick import Look

_Answer = TypeVar("_Answer")
_SHOWN = 16
_LEFT_OUT, _TAKEN_IN = "left out", "taken in all the same"


def _narrow(ctx: click.Context, _: click.Parameter, include: bool) -> None:
    app = ctx.find_object(App)
    if app is not None:
        app.narrow = _with_cordoned if include else _without_cordoned


_NAME = "--include-cordoned"
_SETTINGS: dict[str, Any] = {
    "is_flag": True,
    "callback": _narrow,
    "expose_value": False,
    "help": "Take in hosts that are cordoned (`nodectl ledger`).",
}
# a command that has it is given hosts without those that are cordoned
include_cordoned_option = click.option(_NAME, **_SETTINGS)


def include_cordoned(envvar: str) -> click.Option:
    """Return the option `--include-cordoned` for a command that is made of a list of options."""
    return click.Option([_NAME], envvar=envvar, **_SETTINGS)


def _without_cordoned(app: App, hosts: Sequence[Host]) -> tuple[Host, ...]:
    """Return the hosts that are not cordoned, and name the others on stderr; UsageError where none is left."""
    holds = _held(app, hosts)
    _say(_LEFT_OUT, holds)
    left = tuple(host for host in hosts if host.name not in holds)
    if holds and not left:
        raise nothing_left(list(holds))
    return left


def _with_cordoned(app: App, hosts: Sequence[Host]) -> tuple[Host, ...]:
    _say(_TAKEN_IN, _held(app, hosts))
    return tuple(hosts)


def note_cordoned(app: App) -> None:
    """Say which of the hosts that are looked at are cordoned."""
    _say("in the ledger", _held(app, app.hosts))


def nothing_left(cordoned: Sequence[str]) -> UsageError:
    """Return the error where all hosts are cordoned."""
    first = cordoned[0]
    return UsageError(
        f"nothing is left: {counted(len(cordoned), 'host is', 'hosts are')} cordoned",
        f"nodectl accept --include-cordoned -l {first}, then nodectl ledger return {first}; or {_NAME} here",
    )


def recognise(app: App, parts: Mapping[str, Sequence[Part]]) -> set[str]:
    """Return the hosts that now have a part that was cordoned elsewhere; they are named on stderr, and kept so.

    None of them where cordoned hosts are to be taken in.
    """
    from nodectl.ledger.events import recognised_lines
    from nodectl.ledger.parts import told_apart

    apart, lines = told_apart(parts)

    def ask(ledger: Ledger) -> tuple[Recognised, ...]:
        recognised = ledger.recognised([part for host_parts in apart.values() for part in host_parts])
        for host in dict.fromkeys(one.now.host for one in recognised):
            ledger.saw(host, apart[host])
        return recognised

    recognised = _asked(app, ask) or ()
    included = app.narrow is _with_cordoned
    for line in [*lines, *(f"{_TAKEN_IN if included else _LEFT_OUT}: {text}" for text in recognised_lines(recognised))]:
        note(line)
    return set() if included else {one.now.host for one in recognised}


def look_for_cordoned(app: App) -> Look | None:
    """For the look of a probe, which asks for GPUs and NICs anyway; None where nothing is cordoned."""
    if not _asked(app, lambda ledger: ledger.open_cordons()):
        return None
    from nodectl.ledger.parts import facts_needed, parts_of
    from nodectl.probes.quick import Look

    def leaves_out(facts: Mapping[str, Mapping[str, Any]]) -> set[str]:
        return recognise(app, {host: parts_of(host, host_facts) for host, host_facts in facts.items()})

    return Look(facts_needed(), leaves_out)


def keep_in_ledger(app: App, acceptance: Acceptance, *, cordon: bool) -> None:
    """Keep what an acceptance says; its rejected hosts are cordoned, or the command that does so is shown."""
    from nodectl.ledger.document import suggested

    try:
        with app.ledger() as ledger:
            for line in ledger.record(acceptance):
                note(line)
            already = ledger.cordoned(row.host for row in acceptance.hosts)
            for one in suggested(acceptance):
                if cordon and one.host not in already:
                    ledger.cordon(
                        one.host, one.parts, one.reason, operator(), acceptance=acceptance.id, nature=acceptance.nature
                    )
                    note(f"cordoned: {one.host}: {one.reason}")
                elif one.host not in already:
                    note(f"to leave {one.host} out of all work: {one.command}")
    except HistoryError as error:
        note_not_kept(error)


def _held(app: App, hosts: Sequence[Host]) -> Mapping[str, Sequence[Hold]]:
    return _asked(app, lambda ledger: ledger.cordoned(host.name for host in hosts)) or {}


def _asked(app: App, ask: Callable[[Ledger], _Answer]) -> _Answer | None:
    """Return what the ledger answers, None without one; one that cannot be read costs a line, and nobody's work."""
    if not (state_dir() / FILE).is_file():  # nothing was ever kept; or a device, by which some keep nothing
        return None
    try:
        with app.ledger() as ledger:
            return ask(ledger)
    except HistoryError as error:
        note(f"nodectl: which hosts are cordoned cannot be told: {error.message}\n  try: {error.remedy}")
        return None


def _say(what: str, holds: Mapping[str, Sequence[Hold]]) -> None:
    lines = ["; ".join(hold.text for hold in host_holds) for host_holds in holds.values()]
    for line in lines[:_SHOWN]:
        note(f"{what}: {' '.join(line.split())}")
    if len(lines) > _SHOWN:
        note(f"{what}: {len(lines) - _SHOWN} more that are cordoned: nodectl ledger list")
