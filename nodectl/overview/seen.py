"""The hosts as they are now, or as a recording has them, for a report: findings, wiring and jobs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from nodectl.health.fleet import Health
from nodectl.model.host import Host
from nodectl.model.topology import Fabric
from nodectl.recordings.source import Source
from nodectl.report.page.blocks import Nature, Origin
from nodectl.report.page.content import Found, Wired
from nodectl.topology.fabric.judge import Limits, judge_fabric
from nodectl.topology.fabric.sources import variables_graph
from nodectl.topology.look import look


def nature_of(hosts: Iterable[Host], recorded: str | None) -> Nature:
    """Return whether these are hosts, hosts of a lab, or a recording."""
    if recorded is not None:
        return Nature.RECORDED
    return Nature.LAB if any(host.is_true("nodectl_lab") for host in hosts) else Nature.MEASURED


def origin_of(source: Source, answered: Mapping[str, str]) -> Origin:
    """Return where the hosts' answers are from; `answered` are hosts whose hardware a recording stands for."""
    nature = nature_of(source.hosts, source.recorded)
    if source.recorded is not None:
        return Origin(nature, source.recorded)
    return Origin(nature, ", ".join(f"hardware recorded: {name}" for name in dict.fromkeys(answered.values())))


def health(source: Source, seen: Health) -> Found:
    """Return what a look at these hosts found."""
    return Found(seen.findings, origin_of(source, seen.recorded))


def wiring(source: Source, profile_dirs: Sequence[Path]) -> Wired:
    """Return the inside of the hosts that have GPUs, and the fabric as the inventory or LLDP tells it."""
    graph = variables_graph(source.hosts)
    looked = look(source, profile_dirs, fabric=graph is None)
    graph = graph or looked.graph
    fabric: Fabric | None = None
    if graph is not None:
        fabric = judge_fabric(graph, Limits(), [host.name for host in source.hosts])
    answered = {name: node.recorded for name, node in looked.nodes.items() if node.recorded}
    return Wired(looked.nodes, fabric, origin_of(source, answered))
