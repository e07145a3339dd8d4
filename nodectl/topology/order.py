"""The hosts of a job in the order of their ranks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from nodectl.model.host import Host
from nodectl.topology.fabric import judge_fabric
from nodectl.topology.from_variables import variables_graph
from nodectl.topology.sources import graph_from
from nodectl.topology.verdicts import Limits


def in_rank_order(hosts: Sequence[Host], fabric_from: Path | None) -> tuple[Host, ...]:
    """Neighbours of the fabric beside each other; as the inventory has them where nothing tells of the switches.

    Hosts that the file or nodectl_switch does not name come last.
    """
    graph = graph_from(fabric_from, hosts, {}) if fabric_from else variables_graph(hosts)
    if graph is None:
        return tuple(hosts)
    by_name = {host.name: host for host in hosts}
    order = judge_fabric(graph, Limits(), list(by_name)).rank_order
    return tuple(by_name[name] for name in order if name in by_name)
