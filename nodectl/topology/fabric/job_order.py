"""The hosts of a job in the order of their ranks; a fabric is only judged where something tells of one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from nodectl.model.host import Host


def in_rank_order(hosts: Sequence[Host], fabric_from: Path | None) -> tuple[Host, ...]:
    """Neighbours of the fabric beside each other; as the inventory has them where nothing tells of the switches.

    Hosts that the file or nodectl_switch does not name come last.
    """
    told = any(name in host.variables for host in hosts for name in ("nodectl_switch", "nodectl_rail"))
    if fabric_from is None and not told:
        return tuple(hosts)
    return _by_fabric(hosts, fabric_from)


def _by_fabric(hosts: Sequence[Host], fabric_from: Path | None) -> tuple[Host, ...]:
    from nodectl.topology.fabric.from_variables import variables_graph
    from nodectl.topology.fabric.judge import judge_fabric
    from nodectl.topology.fabric.limits import Limits
    from nodectl.topology.fabric.sources import graph_from

    graph = graph_from(fabric_from, hosts, {}) if fabric_from else variables_graph(hosts)
    if graph is None:
        return tuple(hosts)
    by_name = {host.name: host for host in hosts}
    order = judge_fabric(graph, Limits(), list(by_name)).rank_order
    return tuple(by_name[name] for name in order if name in by_name)
