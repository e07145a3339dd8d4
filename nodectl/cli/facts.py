"""`nodectl facts`: what every host is."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from nodectl.cli.app import App

if TYPE_CHECKING:
    from nodectl.model.result import CommandResult


@click.command()
@click.pass_obj
def facts(app: App) -> None:
    """Show what every host is: CPU, memory, NICs, kernel, versions, GPUs, disk, clock.

    One round trip a host, nothing written there.  A value that a host does not give is null; a subject without values
    says `absent` (no such tool or device) or `unknown` (it could not be read), with the reason.
    """
    from nodectl.cli.terminal import emit_json, note, result
    from nodectl.facts.catalogue import commands_for, read_facts
    from nodectl.model.recording import Recording
    from nodectl.model.result import CommandResult
    from nodectl.nodeset import fold
    from nodectl.recording import collect
    from nodectl.report.facts import as_document, facts_table
    from nodectl.transport.fanout import fan_out

    hosts, transport = app.hosts, app.transport
    found = dict(fan_out(hosts, lambda host: collect(transport, host, commands_for(host)), app.forks))
    answered = {h.name: read_facts(each) for h in hosts if isinstance(each := found[h], Recording)}
    unreachable = {h.name: _reason(each) for h in hosts if isinstance(each := found[h], CommandResult)}
    if app.json:
        documents = {
            host: {name: as_document(value) for name, value in each.items()} for host, each in answered.items()
        }
        emit_json("facts", {"hosts": documents, "unreachable": unreachable})
    elif answered:
        result(facts_table(answered, fold))
    for host, reason in unreachable.items():
        note(f"{host}: {reason}")
    if unreachable:
        raise SystemExit(3)


def _reason(failed: CommandResult) -> str:
    return "; try: ".join(filter(None, [failed.error or str(failed.outcome), failed.remedy]))
