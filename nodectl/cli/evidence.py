"""Shared by commands that look at a host with a fault: its raw outputs are kept before a reset ends its traces."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
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


def _commands_of(app: App, host: Host) -> tuple[Command, ...]:
    """Return all that a vendor may ask for: what `nodectl record` asks, and NVIDIA's own report."""
    from nodectl.facts.catalogue import commands_for, facts_for
    from nodectl.health.host import LIVE
    from nodectl.health.site import commands_on
    from nodectl.ledger.evidence import BUG_REPORT
    from nodectl.recordings.save import sysctl_keys

    facts = facts_for(sysctl_keys(app.profile_dirs), occasions=LIVE)
    return (*commands_for(host, facts), *commands_on(host, app.site_checks), BUG_REPORT)


def _keep(app: App, recording: Recording, findings: Iterable[Finding]) -> None:
    """Keep the outputs where a finding's action would end its traces; if that fails it is told, and no error."""
    from nodectl.ledger import evidence

    try:
        place = evidence.keep(app.fleet, recording, findings)
    except (OSError, NodectlError) as error:
        note(f"warning: {recording.host}: its evidence is not kept: {error}")
        return
    if place is not None:
        note(f"{recording.host}: evidence is kept before a reset: {place}")


def take(app: App, source: Source, hosts: Sequence[Host], findings: Sequence[Finding]) -> None:
    """Ask the hosts which have such a finding, and keep what they say."""
    from nodectl.transport.fanout import fan_out

    wanted = {finding.host for finding in findings if finding.ends_traces}
    try:
        named = [(host, _commands_of(app, host)) for host in hosts if host.name in wanted]
    except NodectlError as error:
        note(f"warning: no evidence is kept: {error}")
        return
    for (host, _), answer in fan_out(named, lambda asked: source.one(*asked), app.forks):
        if isinstance(answer, Recording):
            _keep(app, answer, [finding for finding in findings if finding.host == host.name])
        else:
            note(f"warning: {host.name}: its evidence is not kept: {answer.error}")


def keep_evidence(app: App, hosts: Sequence[Host]) -> None:
    """Keep the raw outputs of those that may be rebooted, and have a fault whose traces that ends."""
    if hosts:
        source = LiveSource(tuple(hosts), app.transport, app.forks)
        try:
            take(app, source, hosts, look_at(app, app.transport)(hosts))
        except NodectlError as error:
            note(f"warning: no evidence is kept before a reboot: {error}")
