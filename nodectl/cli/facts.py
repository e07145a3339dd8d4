"""`nodectl facts`: Show what every host is."""

from __future__ import annotations

import click

from nodectl.cli.app import App
from nodectl.cli.terminal import note
from nodectl.common.few import clipped
from nodectl.facts.catalogue import commands_for, read_facts, words_of
from nodectl.model.recording import Recording
from nodectl.report.hosts import facts_table

# a host, and what stands before it, may print what it likes
_LONGEST_REASON = 400


@click.command()
@click.pass_obj
def facts(app: App) -> None:
    """Show what every host is: CPU, memory, NICs, RDMA, GPUs and their links, kernel, versions, disk, units, clock.

    One round trip a host, nothing written there.  A value that a host does not give is null; a subject without values
    says `absent` (no such tool or device) or `unknown` (it could not be read), with the reason.
    """
    source = app.source
    facts: dict[str, dict[str, object]] = {}
    unreachable: dict[str, str] = {}
    recorded: set[str] = set()
    for host, answer in source.recordings(commands_for):
        if isinstance(answer, Recording):
            facts[host.name] = read_facts(answer)
            recorded |= {answer.recorded} if answer.recorded else set()
        else:
            reason = clipped(answer.error or str(answer.outcome), _LONGEST_REASON)
            unreachable[host.name] = "; try: ".join(filter(None, [reason, answer.remedy]))
    answered = {host.name: facts[host.name] for host in source.hosts if host.name in facts}
    document = {"hosts": answered, "unreachable": unreachable, "recorded": source.recorded}
    app.show("facts", document, facts_table(answered, words_of) if answered and not app.json else "")
    for name in sorted(recorded):
        note(f"recorded: {name}")
    for name, reason in unreachable.items():
        note(f"{name}: {reason}")
    if unreachable:
        raise SystemExit(3)
