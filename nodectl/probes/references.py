"""What measurements are held against: hosts' hardware profiles, and the link class found between their GPUs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from nodectl.errors import ProfileError
from nodectl.facts.catalogue import commands_for, facts_named, read_facts
from nodectl.model.finding import Finding
from nodectl.model.host import Host
from nodectl.model.recording import Recording
from nodectl.model.status import Status
from nodectl.probes.base import ProbeResult
from nodectl.probes.expected import Reference, asks_for_link, floor_size, held_against
from nodectl.profiles.host import hardware_name, hardware_of
from nodectl.profiles.learn import link_between_gpus
from nodectl.recordings.collect import collect
from nodectl.transport.base import Transport
from nodectl.transport.fanout import fan_out

if TYPE_CHECKING:
    from nodectl.profiles.hardware_schema import GpuLink, Hardware

# what tells the link class, as a learned profile has it
_LINK_SUBJECTS = ("gpu_topology", "gpus", "fabric_manager")


def judged(
    transport: Transport, hosts: Sequence[Host], result: ProbeResult, profile_dirs: Sequence[Path], forks: int
) -> ProbeResult:
    """The result with what was expected; a host is asked for its links only where a floor depends on them."""
    taking_part = {name for each in result.measurements for name in each.hosts}
    references, findings = _references([host for host in hosts if host.name in taking_part], profile_dirs)
    asked = [host for host in hosts if _asks(host.name, references, result)]
    for host, link in fan_out(asked, lambda host: _link(transport, host), forks):
        references[host.name] = replace(references[host.name], link=link)
    told = held_against(result, references)
    return ProbeResult(told.measurements, (*told.findings, *findings))


def _references(hosts: Sequence[Host], profile_dirs: Sequence[Path]) -> tuple[dict[str, Reference], list[Finding]]:
    """By host, without those of no named hardware; hosts whose profile cannot be read share a finding."""
    references: dict[str, Reference] = {}
    wrong: dict[tuple[str, str], list[str]] = defaultdict(list)
    for host in hosts:
        try:
            hardware = hardware_of(host, profile_dirs)
            if hardware is not None:
                references[host.name] = _reference(hardware_name(host), hardware)
        except ProfileError as error:
            wrong[error.message, error.remedy].append(host.name)
    return references, list(_unread(wrong))


def _reference(name: str, hardware: Hardware) -> Reference:
    for floor in hardware.floors:
        try:
            floor_size(floor)
        except ValueError as error:
            reason = f"hardware {name}: floors of {floor.probe}: size: {error}"
            raise ProfileError(reason, "write 64K, 8M or 16G") from error
    return Reference(name, hardware)


def _unread(wrong: Mapping[tuple[str, str], Sequence[str]]) -> Iterator[Finding]:
    for (message, remedy), hosts in wrong.items():
        said = f"{message}: measured without a reference"
        yield Finding(hosts[0], "profile", Status.UNKNOWN, "hardware", actual=said, remedy=remedy, hosts=tuple(hosts))


def _asks(host: str, references: Mapping[str, Reference], result: ProbeResult) -> bool:
    own = references.get(host)
    return own is not None and any(
        each.hosts == (host,) and asks_for_link(each, own.hardware) for each in result.measurements
    )


def _link(transport: Transport, host: Host) -> GpuLink | None:
    """None where it cannot be told: no floor that depends on it holds then."""
    facts = facts_named(*_LINK_SUBJECTS)
    recording = collect(transport, host, commands_for(host, facts))
    if not isinstance(recording, Recording):
        return None
    return link_between_gpus(read_facts(recording, facts))
