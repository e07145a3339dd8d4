"""A fabric judged: hops, parts, rails, loads, rank order and findings."""

from __future__ import annotations

from collections.abc import Sequence

from nodectl.common.natural import natural
from nodectl.model.topology import Fabric, FabricGraph
from nodectl.topology.fabric import irregularities
from nodectl.topology.fabric import limits as whole
from nodectl.topology.fabric.distances import Distances, Farthest, farthest, homes_of, parts_of, rank_order
from nodectl.topology.fabric.limits import Limits
from nodectl.topology.fabric.wiring import cables_of, loads_of, names_of, rails_of, shared_switches


def judge_fabric(graph: FabricGraph, limits: Limits, order: Sequence[str] = ()) -> Fabric:
    """All that can be told from the graph; hosts of which nothing is known come last, as `order` has them."""
    homes = homes_of(graph)
    distances = Distances(graph)
    complete = graph.trunks_known or len(set(homes.values())) < 2
    parts = parts_of(graph, distances, homes) if complete else []
    worst = farthest(distances, homes) if complete else Farthest(None, ())
    if worst.hops is None and graph.direct and not homes:
        worst = Farthest(0, graph.direct[0])
    names = names_of(graph)
    path = tuple(names.get(place, place) for place in worst.path)
    loads, rails, shared = loads_of(graph), rails_of(graph), shared_switches(graph)
    findings = (
        *whole.hops(graph, worst.hops, path, limits, complete=complete),
        *whole.parts(parts),
        *whole.nameless(graph),
        *whole.missing(graph),
        *irregularities.nodes(graph),
        *irregularities.ports(graph),
        *irregularities.trunks(graph),
        *irregularities.crossed(graph, rails),
        *irregularities.sharing(shared, homes),
        *irregularities.uplinks(loads),
        *whole.loads(loads, limits),
    )
    rest = [host for host in (*order, *sorted((*graph.hosts, *graph.missing), key=natural)) if host not in homes]
    return Fabric(
        source=graph.source,
        switches=loads,
        max_hops=worst.hops,
        witness=path,
        rank_order=(*rank_order(distances, homes), *dict.fromkeys(rest)),
        rails=rails.rails,
        shared_switches=shared,
        parts=tuple(parts) if len(parts) > 1 else (),
        findings=findings,
        cables=cables_of(graph),
        homes={host: tuple(sorted((names[place] for place in ids), key=natural)) for host, ids in homes.items()},
    )


def unknown_fabric(hosts: Sequence[str]) -> Fabric:
    """Nobody told anything: the hosts as they stand in the inventory."""
    return Fabric("nothing", (), None, (), tuple(hosts), findings=(whole.nothing_known(),))
