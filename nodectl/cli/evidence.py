"""Shared by commands that look at a host with a fault: its raw outputs are kept before a reset ends its traces."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from nodectl.cli.app import App
from nodectl.cli.measuring import look_at
from nodectl.cli.terminal import note
from nodectl.errors import NodectlError
from nodectl.model.finding import Finding
from nodectl.model.recording import Recording
from nodectl.recordings.source import LiveSource

if TYPE_CHECKING:
    from nodectl.model.host import Host
    from nodectl.model.recording import Command
    from nodectl.recordings.source import Source


def take(app: App, source: Source, hosts: Sequence[Host], findings: Sequence[Finding]) -> None:
    """Ask hosts that have a finding whose action ends its traces, and keep what they answer; a failure is a note."""
    from nodectl.facts.catalogue import commands_for, facts_for
    from nodectl.health.host import LIVE
    from nodectl.health.site import commands_on
    from nodectl.ledger import evidence
    from nodectl.recordings.save import sysctl_keys
    from nodectl.transport.fanout import fan_out

    def commands_of(host: Host) -> tuple[Command, ...]:
        # all that a vendor may ask for: what `nodectl record` asks, and NVIDIA's own report
        facts = facts_for(sysctl_keys(app.profile_dirs), occasions=LIVE)
        return (*commands_for(host, facts), *commands_on(host, app.site_checks), evidence.BUG_REPORT)

    wanted = {finding.host for finding in findings if finding.ends_traces}
    try:
        named = [(host, commands_of(host)) for host in hosts if host.name in wanted]
    except NodectlError as error:
        note(f"warning: no evidence is kept: {error}")
        return
    for (host, _), answer in fan_out(named, lambda asked: source.one(*asked), app.forks):
        if not isinstance(answer, Recording):
            note(f"warning: {host.name}: its evidence is not kept: {answer.error}")
            continue
        try:
            place = evidence.keep(app.fleet, answer, [finding for finding in findings if finding.host == host.name])
        except (OSError, NodectlError) as error:
            note(f"warning: {host.name}: its evidence is not kept: {error}")
            continue
        if place is not None:
            note(f"{host.name}: evidence is kept before a reset: {place}")


def keep_evidence(app: App, hosts: Sequence[Host]) -> None:
    """Keep the raw outputs of those that may be rebooted, and have a fault whose traces that ends."""
    if hosts:
        source = LiveSource(tuple(hosts), app.transport, app.forks)
        try:
            take(app, source, hosts, look_at(app, app.transport)(hosts))
        except NodectlError as error:
            note(f"warning: no evidence is kept before a reboot: {error}")
