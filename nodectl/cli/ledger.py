"""`nodectl ledger`: Which hosts are cordoned, and what happened to each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from nodectl.cli.app import App
from nodectl.cli.terminal import note, terminal_width
from nodectl.common.nodeset import unfolded
from nodectl.common.process import operator
from nodectl.common.spelling import meant
from nodectl.errors import InventoryError, NodectlError, UsageError
from nodectl.ledger.document import event_document, life_lines, list_document, list_rows
from nodectl.ledger.store import lacking, open_cordons
from nodectl.report.table import fitted

if TYPE_CHECKING:
    from nodectl.ledger.store import Ledger

_NOTHING = "nothing is known of this fleet yet: `nodectl accept` keeps what it finds"


@click.group()
def ledger() -> None:
    """Cordon hosts, and show what happened to them."""


@ledger.command("list")
@click.pass_obj
def list_(app: App) -> None:
    """List the fleet's hosts that the ledger knows: cordoned or not, and what their last acceptance said."""
    with app.ledger() as kept:
        lives = {host: kept.life(host) for host in kept.hosts()}
    rows = [("HOST", "STATE", "SINCE", "LAST VERDICT", "WHY"), *list_rows(lives)]
    app.show("ledger", list_document(lives), fitted(rows, terminal_width()) if lives else _NOTHING)


@ledger.command()
@click.argument("host", metavar="HOST")
@click.pass_obj
def show(app: App, host: str) -> None:
    """Show the history of a host: what was found, who cordoned it and why, its return, GPUs that were replaced."""
    with app.ledger() as kept:
        life = kept.life(host)
        if not life:
            raise UsageError(f"{host} is not known", f"{meant(host, kept.hosts())}see nodectl ledger list")
    document = {"host": host, "events": [event_document(event) for event in life]}
    app.show("ledger", document, "\n".join(life_lines(life)).strip("\n"))


@ledger.command()
@click.argument("host", metavar="HOST")
@click.option(
    "--reason", required=True, metavar="TEXT", help="The reason, which is shown wherever the host is left out."
)
@click.pass_obj
def cordon(app: App, host: str, reason: str) -> None:
    """Leave HOST (an Ansible pattern) out of launch, probe, accept, bench and trials."""
    reason = _reason(reason)
    who, events = operator(), []
    with app.ledger() as kept:
        for name in _hosts(app, kept, host):
            for cordon in open_cordons(kept.life(name)):
                note(f"it is cordoned already ({cordon.text}); the new reason is kept with that one")
            events.append(kept.cordon(name, reason, who))
    document = {"events": [event_document(event) for event in events]}
    app.show("ledger", document, "\n".join(f"{event.host}: cordoned" for event in events))


@ledger.command("return")
@click.argument("host", metavar="HOST")
@click.option(
    "--without-proof", is_flag=True, help="Return it although what failed has not passed since; this is recorded."
)
@click.option("--reason", metavar="TEXT", help="The reason for --without-proof.")
@click.pass_obj
def return_(app: App, host: str, without_proof: bool, reason: str | None) -> None:
    """Let a cordoned HOST work again: once an acceptance since has passed what failed before.

    Exit status 1: it is not proven.
    """
    if without_proof != (reason is not None):
        raise UsageError("--without-proof and --reason go together", "say why it returns without proof")
    proof = f"without proof: {_reason(reason)}" if reason is not None else "what failed has passed since"
    with app.ledger() as kept:
        life = kept.life(host)
        if not open_cordons(life):
            hint = "" if life else meant(host, kept.hosts())
            raise UsageError(f"{host} is not cordoned in this fleet", f"{hint}see nodectl ledger list")
        if not without_proof and (missing := lacking(life)):
            raise NodectlError(
                f"{host} does not return: {missing}",
                f"nodectl accept --include-cordoned -l {host}, then this again; or --without-proof --reason TEXT",
            )
        event = kept.return_(host, proof, operator())
    app.show("ledger", {"events": [event_document(event)]}, f"{host}: returned")


def _reason(text: str) -> str:
    reason = " ".join(text.split())
    if not reason:
        raise UsageError("--reason is empty", "say why: it is shown wherever the host is named")
    return reason


def _hosts(app: App, kept: Ledger, pattern: str) -> Sequence[str]:
    """Return the hosts of the pattern; one that has left the inventory is known by its name."""
    app.limit = unfolded(pattern)
    try:
        return [host.name for host in app.source.hosts]
    except InventoryError:
        if pattern not in kept.hosts():
            raise
        return [pattern]
