"""Everything that `nodectl topology` shows, from the hosts' facts and what is known of the fabric."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from nodectl.errors import ProfileError
from nodectl.facts.board import Pcie
from nodectl.facts.catalogue import commands_for, facts_named, read_facts
from nodectl.facts.look import Lab
from nodectl.facts.rdma import ports_in
from nodectl.model.facts import Unread
from nodectl.model.finding import Finding
from nodectl.model.host import Host
from nodectl.model.recording import Recording
from nodectl.model.status import Status
from nodectl.model.topology import FabricGraph, NodeTopology
from nodectl.profiles.gpus import WORKS_BESIDE
from nodectl.profiles.host import hardware_of
from nodectl.recordings.source import Source
from nodectl.topology.fabric.sources import LLDP, bare, recorded_graph
from nodectl.topology.node import SUBJECTS, node_topology

_WANTED = frozenset({*SUBJECTS, "nics", "mounts", "gids", "versions", "lab"})


@dataclass(frozen=True, slots=True)
class Looked:
    """The hosts' answers: the picture of each that has GPUs, all facts, and the fabric where their files show it."""

    nodes: Mapping[str, NodeTopology] = field(default_factory=dict)
    facts: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    findings: tuple[Finding, ...] = ()
    graph: FabricGraph | None = None

    @property
    def guids(self) -> dict[str, tuple[str, str]]:
        """GUID of an adapter → its host and device."""
        return {
            bare(port.guid): (host, port.device)
            for host, facts in self.facts.items()
            for port in ports_in(facts)
            if port.guid
        }


def look(source: Source, profile_dirs: Sequence[Path], *, fabric: bool) -> Looked:
    """Ask every host once; `fabric`: for what it knows of the fabric, too."""
    facts = facts_named(*_WANTED)
    more = (LLDP,) if fabric else ()
    nodes: dict[str, NodeTopology] = {}
    facts_of: dict[str, Mapping[str, object]] = {}
    findings: dict[str, list[Finding]] = {}
    lldp: dict[str, str] = {}
    for host, answer in source.recordings(lambda host: (*commands_for(host, facts), *more)):
        if not isinstance(answer, Recording):
            reason = answer.error or str(answer.outcome)
            findings[host.name] = [_finding(host, "reachable", Status.UNKNOWN, reason, answer.remedy)]
            continue
        facts_of[host.name] = read_facts(answer, facts)
        entry = answer.entries.get(LLDP.key)
        if entry and entry.exit_status == 0 and not entry.cut:
            lldp[host.name] = entry.stdout
        lab = facts_of[host.name].get("lab")
        recorded = answer.recorded or (lab.recorded if isinstance(lab, Lab) else "") or ""
        node = node_topology(host, facts_of[host.name], recorded=recorded)
        if isinstance(node, NodeTopology):
            nodes[host.name] = node
            findings[host.name] = [*_unseen(host, node), *node.bottlenecks]
        else:
            findings[host.name] = [_unread(host, node, facts_of[host.name].get("pcie"), profile_dirs)]
    order = [host.name for host in source.hosts]
    return Looked(
        nodes={name: nodes[name] for name in order if name in nodes},
        facts={name: facts_of[name] for name in order if name in facts_of},
        findings=tuple(finding for name in order for finding in findings.get(name, ())),
        graph=recorded_graph(lldp, source.hosts) if fabric else None,
    )


def _unseen(host: Host, node: NodeTopology) -> Iterator[Finding]:
    """Yield an unknown finding on a host of which some facts were not read: a bottleneck could hide there."""
    if node.unknown:
        remedy = "record it again with all of them; what needs root, `nodectl sudoers` prints"
        yield _finding(host, "topology", Status.UNKNOWN, f"not read: {'; '.join(node.unknown)}", remedy)


_NO_TOOL = (
    "if it has GPUs (`lspci | grep -i nvidia`), install the driver: `nodectl provision --tags nvidia_driver` unless "
    "nodectl_driver is keep; if it has none, set nodectl_hardware to a profile with `gpus: 0`"
)


def _unread(host: Host, node: Unread, pcie: object, profile_dirs: Sequence[Path]) -> Finding:
    try:
        gpus = hardware_of(host, profile_dirs).gpus
    except ProfileError:
        gpus = None
    if node.kind == "absent" and gpus == 0:
        return _finding(host, "topology", Status.SKIPPED, "no GPUs, as its hardware profile says")
    if node.kind == "absent" and isinstance(pcie, Pcie) and pcie.other_gpus and not pcie.gpus_of("NVIDIA"):
        return _finding(host, "topology", Status.SKIPPED, f"no NVIDIA GPU, {pcie.other_gpus}: {WORKS_BESIDE}")
    remedy = _NO_TOOL if node.kind == "absent" else ""
    return _finding(host, "topology", Status.UNKNOWN, node.reason, remedy)


def _finding(host: Host, check: str, status: Status, actual: str, remedy: str = "") -> Finding:
    return Finding(host.name, check, status, actual=actual, remedy=remedy, kind="host", hosts=(host.name,))
