"""`nodectl ledger`: Which hosts are cordoned, and what happened to each GPU, NIC and host."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import click

from nodectl.cli import completing
from nodectl.cli.app import App
from nodectl.cli.options import OneOf
from nodectl.cli.terminal import note, result, terminal_width
from nodectl.common.nodeset import unfolded
from nodectl.common.process import operator
from nodectl.common.spelling import meant
from nodectl.errors import InventoryError, NodectlError, UsageError
from nodectl.facts.catalogue import commands_for, read_facts
from nodectl.facts.look import Lab
from nodectl.ledger.document import (
    ansible_group,
    event_document,
    life_lines,
    list_document,
    list_rows,
    part_rows,
    slurm_lines,
)
from nodectl.ledger.events import Event, EventKind, Hold
from nodectl.ledger.parts import facts_needed, named, parts_of, told_apart
from nodectl.ledger.store import LAB, Ledger
from nodectl.model.acceptance import Part
from nodectl.model.recording import Recording
from nodectl.report.table import aligned, fitted

_NOTHING = "nothing is known of this fleet yet: `nodectl accept` keeps what it finds"
_EXPORTS = ("slurm", "ansible")


@click.group()
def ledger() -> None:
    """Cordon hosts, and keep what happened to each GPU, NIC and host, whatever its name was."""


@ledger.command("list")
@click.option("--parts", "with_parts", is_flag=True, help="Show each part in the table, too.")
@click.option(
    "--export",
    type=OneOf(_EXPORTS),
    help="Print the cordoned hosts as commands for scontrol (slurm), or as a group `cordoned` (ansible).",
)
@click.pass_obj
def list_(app: App, with_parts: bool, export: str | None) -> None:
    """List the fleet's hosts that the ledger knows: cordoned or not, and what their last acceptance said."""
    with app.ledger() as kept:
        lives = {host: kept.life_of_host(host) for host in kept.hosts()}
        holds = kept.cordoned(lives)
        places = kept.known_parts()
        elsewhere = kept.open_cordons()
    if export is not None:
        returned = [host for host, life in lives.items() if host not in holds and _was_returned(life)]
        text = slurm_lines(holds, returned) if export == "slurm" else ansible_group(holds)
        if text:
            result(text)
        return
    rows = list_rows(lives, holds)
    text = fitted([("HOST", "STATE", "SINCE", "LAST VERDICT", "PARTS", "WHY"), *rows], terminal_width()) if rows else ""
    if with_parts and places:
        table = aligned([("PART", "STATE", "KIND", "MODEL", "WHERE", "SEEN"), *part_rows(places, elsewhere)])
        text = f"{text}\n\n{table}"
    app.show("ledger", list_document(lives, holds, places, elsewhere), text or _NOTHING)


@ledger.command()
@click.argument("target", metavar="PART|HOST", shell_complete=completing.host)
@click.pass_obj
def show(app: App, target: str) -> None:
    """Show the history of a host or part: where it was seen, what was found, who cordoned it and why, its return.

    PART is a GPU's UUID, a NIC's GUID, a host's serial number or machine-id, its beginning, or a card's serial number.
    """
    with app.ledger() as kept:
        hosts = kept.hosts()
        life, key = (kept.life_of_host(target), None) if target in hosts else _life_of_part(kept, target)
        holds = kept.cordoned([target] if key is None else [life[-1].host])
        place = kept.place_of(key) if key is not None else None
        cordons = kept.open_cordons()
    document: dict[str, Any] = {
        "host": target if key is None else None,
        "part": None if key is None else {"kind": str(key[0]), "id": key[1]},
        "events": [event_document(event) for event in life],
    }
    app.show("ledger", document, "\n".join(life_lines(life, key, place, holds, cordons)))


@ledger.command()
@click.argument("host", metavar="HOST", shell_complete=completing.host)
@click.option(
    "--reason", required=True, metavar="TEXT", help="The reason, which is shown wherever the host is left out."
)
@click.option(
    "--part", "wanted", multiple=True, metavar="ID", help="Cordon this GPU or NIC alone, on whichever host it is."
)
@click.pass_obj
def cordon(app: App, host: str, reason: str, wanted: tuple[str, ...]) -> None:
    """Leave HOST (an Ansible pattern) out of launch, probe, accept, bench and trials, with all its parts.

    The hosts are asked which parts they have; of one that does not answer those count that are known. A part that turns
    up in another host is recognised there.
    """
    reason = _reason(reason, "--reason")
    who, events = operator(), []
    with app.ledger() as kept:
        for name, (parts, nature) in _parts_of(app, kept, host).items():
            chosen = _chosen(name, parts, wanted) if wanted else parts
            for hold in kept.cordoned([name]).get(name, ()):
                note(f"it is cordoned already ({hold.text}); the new reason is kept beside that one")
            events.append(kept.cordon(name, chosen, reason, who, whole=not wanted, nature=nature))
    lines = [f"{event.host}: cordoned: {named(kept.part for kept in event.parts) or 'its name'}" for event in events]
    app.show("ledger", {"events": [event_document(event) for event in events]}, "\n".join(lines))


@ledger.command("return")
@click.argument("host", metavar="HOST", shell_complete=completing.host)
@click.option(
    "--without-proof", is_flag=True, help="Return it although what failed has not passed since; this is recorded."
)
@click.option("--reason", metavar="TEXT", help="The reason for --without-proof.")
@click.pass_obj
def return_(app: App, host: str, without_proof: bool, reason: str | None) -> None:
    """Let a cordoned HOST work again: once an acceptance since has passed what failed before.

    Parts that are no longer in it stay cordoned. Exit status 1: it is not proven.
    """
    if without_proof != (reason is not None):
        raise UsageError("--without-proof and --reason go together", "say why it returns without proof")
    proof = f"without proof: {_reason(reason, '--reason')}" if reason is not None else "what failed has passed since"
    with app.ledger() as kept:
        holds = kept.cordoned([host]).get(host, ())
        if not holds:
            hint = meant(host, [name for name in kept.hosts() if name != host]) if host not in kept.hosts() else ""
            raise UsageError(f"{host} is not cordoned in this fleet", f"{hint}see nodectl ledger list".strip())
        if not without_proof:
            _refuse_unproven(kept, host, holds)
        who = operator()
        events = [kept.return_(hold, proof, who) for hold in holds]
    lines = [f"{event.host}: returned: {named(kept.part for kept in event.parts) or 'its name'}" for event in events]
    app.show("ledger", {"events": [event_document(event) for event in events]}, "\n".join(dict.fromkeys(lines)))


def _refuse_unproven(kept: Ledger, host: str, holds: Sequence[Hold]) -> None:
    for hold in holds:
        if missing := kept.lacking(hold):
            raise NodectlError(
                f"{host} does not return: {missing}",
                f"nodectl accept --include-cordoned -l {host}, then this again; or --without-proof --reason TEXT",
            )


def _was_returned(life: Sequence[Event]) -> bool:
    """Return whether the latest event about its cordon is a return."""
    kinds = [event.kind for event in life if event.kind is not EventKind.SEEN]
    return bool(kinds) and kinds[-1] is EventKind.RETURNED


def _life_of_part(kept: Ledger, target: str) -> tuple[tuple[Event, ...], Any]:
    keys = kept.parts_like(target)
    if len(keys) > 1:
        raise UsageError(f"{target}: {len(keys)} parts begin so", f"write more of it: {keys[0][1]}, {keys[1][1]}, …")
    if not keys:
        hint = meant(target, kept.hosts())
        raise UsageError(f"{target}: no such part or host is known", f"{hint}see nodectl ledger list --parts".strip())
    return kept.life_of_part(keys[0]), keys[0]


def _reason(text: str, option: str) -> str:
    reason = " ".join(text.split())
    if not reason:
        raise UsageError(f"{option} is empty", "say why: it stands wherever the host is named")
    return reason


def _chosen(host: str, parts: Sequence[Part], wanted: Sequence[str]) -> tuple[Part, ...]:
    """Return the parts with these identities, or beginnings of them."""
    chosen = []
    for text in wanted:
        fitting = [part for part in parts if part.id.lower().startswith(text.lower()) or part.serial == text]
        if len(fitting) != 1:
            choices = "; ".join(f"{one.id} ({one.place or one.kind})" for one in fitting or parts) or "none is known"
            raise UsageError(f"--part {text}: {len(fitting)} parts of {host} begin so", f"name one: {choices}")
        chosen += fitting
    return tuple(chosen)


def _parts_of(app: App, kept: Ledger, pattern: str) -> Mapping[str, tuple[tuple[Part, ...], str]]:
    """Return the hosts with the parts that they have now, else those known, and the nature of that.

    A host that has left the inventory is known, too.
    """
    app.limit = unfolded(pattern)
    try:
        source = app.source
    except InventoryError:
        if pattern not in kept.hosts():
            raise
        return {pattern: _known(kept, pattern)}
    asked, natures = {}, {}
    for host, answer in source.recordings(lambda host: commands_for(host, facts_needed())):
        if isinstance(answer, Recording):
            facts = read_facts(answer, facts_needed())
            asked[host.name] = parts_of(host.name, facts)
            natures[host.name] = LAB if isinstance(facts["lab"], Lab) else "recorded" if app.replay else "measured"
        else:
            note(f"{host.name} does not answer ({answer.error}): its parts are those that are known")
    apart, lines = told_apart(asked)
    for line in lines:
        note(line)
    for name, parts in apart.items():
        kept.saw(name, parts)
    names = [host.name for host in source.hosts]
    return {name: (apart[name], natures[name]) if name in apart else _known(kept, name) for name in names}


def _known(kept: Ledger, host: str) -> tuple[tuple[Part, ...], str]:
    """Return the parts that are known, and of what nature the host was when it was last judged."""
    judged = kept.acceptances(kept.fleet, host)
    return kept.parts_in(host), judged[-1].nature if judged else ""
