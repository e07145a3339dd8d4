"""A fabric's graph, measured and judged: hops, parts, rails, loads, the order of ranks; findings on all that is odd."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from math import inf
from typing import Any, TypeVar

from nodectl.common.counting import counted
from nodectl.common.few import few
from nodectl.common.natural import natural
from nodectl.common.statistics import QUORUM
from nodectl.model.finding import Finding
from nodectl.model.host import Host
from nodectl.model.status import Status
from nodectl.model.topology import Attachment, Fabric, FabricGraph, Rail, SwitchLoad, joined
from nodectl.topology.fabric.sources import variables_graph

# the host of a finding that blames no single one
FABRIC = "fabric"
MAX_HOPS = 3
_CABLE = "reseat or replace the cable or its optics, then look at both ports"


class Distances:
    """Distances between the switches to which hosts are attached."""

    def __init__(self, graph: FabricGraph) -> None:
        self._place = {switch.id: place for place, switch in enumerate(graph.switches)}
        self._near: dict[str, set[str]] = {switch: set() for switch in self._place}
        for trunk in graph.trunks:
            self._near[trunk.a].add(trunk.b)
            self._near[trunk.b].add(trunk.a)
        self._known: dict[str, dict[str, float]] = {}

    def around(self, switches: Iterable[str]) -> dict[str, float]:
        """Return how many switches are on the way to each from the nearest of these, which are 1; inf without a way."""
        ways, level, count = dict.fromkeys(self._place, inf), set(switches), 1
        while level:
            ways |= dict.fromkeys(level, count)
            level = {near for switch in level for near in self._near[switch] if ways[near] == inf}
            count += 1
        return ways

    def nearest(self, switch: str, targets: Iterable[str]) -> float:
        """Return the number of switches on the way from a host at `switch` to one at the nearest of `targets`."""
        if switch not in self._known:
            self._known[switch] = self.around([switch])
        return min(map(self._known[switch].__getitem__, targets))

    def path(self, switch: str, targets: Iterable[str]) -> list[str]:
        """Return the switches on the way to the nearest of `targets`, the first of several in the graph's order."""
        ways = self.around([switch])
        here = min(targets, key=lambda target: (ways[target], self._place[target]))
        way = [here]
        while here != switch:
            closer = (other for other in self._near[here] if ways[other] < ways[here])
            here = min(closer, key=self._place.__getitem__)
            way.append(here)
        return way[::-1]


def homes_of(graph: FabricGraph) -> dict[str, frozenset[str]]:
    """Return the switches of each host, hosts in counting order; hosts without one are left out."""
    switches: dict[str, set[str]] = defaultdict(set)
    for attachment in graph.attachments:
        switches[attachment.host].add(attachment.switch)
    return {host: frozenset(switches[host]) for host in sorted(switches, key=natural)}


def _by_switches(homes: Mapping[str, frozenset[str]]) -> dict[frozenset[str], list[str]]:
    classes: dict[frozenset[str], list[str]] = defaultdict(list)
    for host, switches in homes.items():
        classes[switches].append(host)
    return classes


def farthest(distances: Distances, homes: Mapping[str, frozenset[str]]) -> tuple[int | None, tuple[str, ...]]:
    """Return the worst pair's number of switches, and the path from host to host; None and empty if none are joined.

    Each port counts towards the other host's nearest port: hosts with rails are as far apart as their worst rail.
    """
    classes = _by_switches(homes)
    worst, ends = 0, ("", "", "")
    for ours, members in classes.items():
        for switch in sorted(ours, key=natural):
            for theirs, others in classes.items():
                hops = distances.nearest(switch, theirs)
                if worst < hops < inf and (ours != theirs or len(members) > 1):
                    worst, ends = int(hops), (members[0], switch, others[1] if ours == theirs else others[0])
    if not worst:
        return None, ()
    first, switch, second = ends
    return worst, (first, *distances.path(switch, homes[second]), second)


def parts_of(graph: FabricGraph, homes: Mapping[str, frozenset[str]]) -> list[tuple[str, ...]]:
    """Return the groups of hosts that can reach one another, largest first; one group where the fabric is whole."""
    islands: dict[frozenset[str], list[str]] = defaultdict(list)
    island_of = joined({switch.id for switch in graph.switches}, [(trunk.a, trunk.b) for trunk in graph.trunks])
    for host, switches in homes.items():
        for island in {island_of[switch] for switch in switches}:
            islands[island].append(host)
    groups = {frozenset(hosts) for hosts in [*islands.values(), *graph.direct]}
    groups |= {frozenset([host]) for host in set(graph.hosts).difference(homes, *graph.direct)}
    largest = [part for part in groups if not any(part < other for other in groups)]
    return sorted((tuple(sorted(part, key=natural)) for part in largest), key=lambda part: (-len(part), part))


def rank_order(distances: Distances, homes: Mapping[str, frozenset[str]]) -> tuple[str, ...]:
    """All hosts, those with the same switches in the order of `homes`, then those nearest to them."""
    groups = _by_switches(homes)
    order: list[str] = []
    here = next(iter(groups), None)
    while here is not None:
        order += groups.pop(here)
        # how far each group is: by its worst port, then by all; of equally far ones the first
        ways = {group: [distances.nearest(switch, group) for switch in here] for group in groups}
        here = min(ways, key=lambda group: (max(ways[group]), sum(ways[group])), default=None)
    return tuple(order)


def _names_of(graph: FabricGraph) -> dict[str, str]:
    times = Counter(switch.name for switch in graph.switches)
    return {
        switch.id: switch.name if times[switch.name] == 1 else f"{switch.name} ({switch.id})"
        for switch in graph.switches
    }


def _loads_of(graph: FabricGraph, names: Mapping[str, str], distances: Distances) -> tuple[SwitchLoad, ...]:
    """Each switch's ports towards hosts and away from them, by tier and name; tier 0 if no way leads to a host."""
    ways = distances.around({attachment.switch for attachment in graph.attachments})
    tiers = {switch: 0 if tier == inf else int(tier) for switch, tier in ways.items()}
    down: Counter[str] = Counter(port.switch for port in graph.attachments)
    up: Counter[str] = Counter()
    for trunk in graph.trunks:
        for here, there in ((trunk.a, trunk.b), (trunk.b, trunk.a)):
            # a cable between equals leads away from the hosts of both
            (down if tiers[there] < tiers[here] else up)[here] += 1
    hosts = Counter(switch for switches in homes_of(graph).values() for switch in switches)
    loads = [SwitchLoad(names[switch], tiers[switch], hosts[switch], down[switch], up[switch]) for switch in names]
    return tuple(sorted(loads, key=lambda load: (load.tier, natural(load.switch))))


# ports that lie on another rail's switch, each with the rail that it joins wrongly
_Crossed = tuple[tuple[Attachment, str], ...]


def _rails_of(graph: FabricGraph, names: Mapping[str, str]) -> tuple[tuple[Rail, ...], _Crossed]:
    """Ports that share switches, by the source's rail or the NIC's name; none where the NICs of a host are mixed."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for port in graph.attachments:
        counts[port.switch][port.label] += 1
    pairs: list[tuple[str, str]] = []
    regular: dict[str, str] = {}
    for switch, labels in counts.items():
        most = max(labels.values())
        # a crossed cable or two are no design
        usual = sorted((label for label, count in labels.items() if 2 * count > most), key=natural)
        regular[switch] = usual[0]
        pairs += [(usual[0], label) for label in usual]
    groups = joined({label for labels in counts.values() for label in labels}, pairs)
    # what is regular nowhere is no rail of its own
    on: dict[frozenset[str], list[str]] = defaultdict(list)
    for switch, label in regular.items():
        on[groups[label]].append(names[switch])
    if len(on) < 2:
        return (), ()
    rails = []
    for group, switches in on.items():
        nics = tuple(sorted(group, key=natural))
        rails.append(Rail("+".join(nics), nics, tuple(sorted(switches, key=natural))))
    title = {label: rail.name for rail in rails for label in rail.nics}
    crossed = tuple(
        (port, title[regular[port.switch]])
        for port in graph.attachments
        if groups[port.label] != groups[regular[port.switch]]
    )
    return tuple(sorted(rails, key=lambda rail: natural(rail.name))), crossed


def _too_far(
    graph: FabricGraph, count: int | None, path: Sequence[str], max_hops: int, *, complete: bool
) -> Iterator[Finding]:
    expected = f"at most {counted(max_hops, 'switch')} between any two hosts"
    if not complete:
        yield _hops_unknown(
            f"{graph.source} shows only the switches beside the hosts, not the cables between switches",
            "give the whole fabric: --fabric-from with ibnetdiscover's text, or lldpctl's JSON of switches too",
            expected,
        )
    elif not graph.attachments and not graph.direct:
        remedy = "is it the output of a fabric with these hosts? Compare the names"
        yield _hops_unknown(f"{graph.source} shows no host on a switch", remedy, expected)
    elif count is not None:
        over = "bring both below one spine, or keep a job inside one of them (--limit); --max-hops allows more"
        yield _finding(
            FABRIC,
            "fabric_hops",
            status=Status.FAILED if count > max_hops else Status.OK,
            subject=f"{path[0]} - {path[-1]}",
            expected=expected,
            actual=f"{count}: {' - '.join(path)}",
            remedy=over if count > max_hops else "",
            kind="path",
            hosts=(path[0], path[-1]),
        )


def _hops_unknown(actual: str, remedy: str, expected: str = "") -> Finding:
    return Finding(FABRIC, "fabric_hops", Status.UNKNOWN, expected=expected, actual=actual, remedy=remedy)


def _unjoined(graph: FabricGraph, parts: Sequence[Sequence[str]]) -> Iterator[Finding]:
    if len(parts) > 1:
        yield _finding(
            FABRIC,
            "fabric_partitioned",
            status=Status.FAILED,
            expected="a way between any two hosts",
            actual=f"{len(parts)} parts without a way between them: {'; '.join(few(part) for part in parts)}",
            remedy="look at the cables and port states between the parts' switches",
            hosts=tuple(part[0] for part in parts),
        )
    if graph.nameless:
        yield _finding(
            FABRIC,
            "fabric_nameless",
            status=Status.UNKNOWN,
            expected="each adapter carries its host's name, and no other adapter the same",
            actual=f"{len(graph.nameless)} without: {few(graph.nameless)}",
            remedy="on that host: restart rdma-ndd, or write the node description (/sys/class/infiniband/*/node_desc)",
        )
    for host in graph.missing:
        yield _finding(
            host,
            "fabric_host",
            status=Status.UNKNOWN,
            expected="a port on a switch",
            actual=f"not in {graph.source}",
            remedy="does it carry another name there? Else look at its ports (ibstat), or leave it out with --limit",
        )


V = TypeVar("V", bound=Hashable)


def _majority(values: Iterable[V]) -> V | None:
    """Return the value that more than half have; None if there is none, or fewer than QUORUM are compared."""
    counts = Counter(values)
    value, count = next(iter(counts.most_common(1)), (None, 0))
    return value if counts.total() >= QUORUM and 2 * count > counts.total() else None


def _odd_hosts(graph: FabricGraph) -> Iterator[Finding]:
    ports = Counter(attachment.host for attachment in graph.attachments)
    shapes = {
        host: f"{counted(ports[host], 'port')} on {counted(len(switches), 'switch')}"
        for host, switches in homes_of(graph).items()
    }
    usual = _majority(shapes.values())
    for host, shape in shapes.items():
        if usual not in (None, shape):
            remedy = "look at the host's port states (ibstat) and cables"
            yield _finding(host, "fabric_node", actual=shape, expected=f"{usual}, as most hosts", remedy=remedy)


def _slow_links(graph: FabricGraph, names: Mapping[str, str]) -> Iterator[Finding]:
    by_nic: dict[str, list[float]] = defaultdict(list)
    for port in graph.attachments:
        if port.gbit_s is not None:
            by_nic[port.nic].append(port.gbit_s)
    everywhere = _majority(rate for rates in by_nic.values() for rate in rates)
    for port in graph.attachments:
        usual = _majority(by_nic[port.nic]) or everywhere
        if slow := _slow(port.gbit_s, usual, port.speed, f" to {names[port.switch]}"):
            yield _finding(port.host, "fabric_port_rate", subject=port.nic, **slow)
    usual = _majority(trunk.gbit_s for trunk in graph.trunks if trunk.gbit_s is not None)
    for trunk in graph.trunks:
        ends = (names[trunk.a], names[trunk.b])
        if slow := _slow(trunk.gbit_s, usual, trunk.speed):
            yield _finding(FABRIC, "fabric_trunk_rate", subject=" - ".join(ends), kind="path", hosts=ends, **slow)


def _slow(gbit_s: float | None, usual: float | None, speed: str, where: str = "") -> dict[str, str]:
    """Return the words of a finding on a link below the usual rate; none if it is not, or if a rate is unknown."""
    if gbit_s is None or usual is None or gbit_s >= usual:
        return {}
    actual = f"{gbit_s:g} Gbit/s ({speed})" if speed else f"{gbit_s:g} Gbit/s"
    return {"actual": actual + where, "expected": f"{usual:g} Gbit/s, as most others", "remedy": _CABLE}


def _crossed_cables(
    graph: FabricGraph, names: Mapping[str, str], rails: Sequence[Rail], crossed: _Crossed
) -> Iterator[Finding]:
    """Ports that lie on a switch of another rail; not of hosts that number their NICs otherwise than most."""
    rail_of = {nic: rail.name for rail in rails for nic in rail.nics}
    nics: dict[str, set[str]] = defaultdict(set)
    for attachment in graph.attachments:
        nics[attachment.host].add(attachment.label)
    usual = _majority(frozenset(listed) for listed in nics.values())
    for port, rail in crossed:
        if usual is not None and nics[port.host] <= usual:
            yield _finding(
                port.host,
                "fabric_rail",
                subject=port.nic,
                actual=f"on {names[port.switch]}, a switch of rail {rail}",
                expected=f"a switch of rail {rail_of.get(port.label, port.label)}",
                remedy="are two cables crossed?",
            )


def _finding(host: str, check: str, **said: Any) -> Finding:
    of_host = {} if host == FABRIC else {"kind": "host", "hosts": (host,)}
    return Finding(host, check, **{"status": Status.WARNING, **of_host, **said})


def judge_fabric(graph: FabricGraph, order: Sequence[str] = (), max_hops: int = MAX_HOPS) -> Fabric:
    """All that can be told from the graph; hosts of which nothing is known come last, as `order` has them."""
    homes, names, distances = homes_of(graph), _names_of(graph), Distances(graph)
    complete = graph.trunks_known or len(set(homes.values())) < 2
    parts = parts_of(graph, homes) if complete else []
    hops, way = farthest(distances, homes) if complete else (None, ())
    if hops is None and graph.direct and not homes:
        hops, way = 0, graph.direct[0]
    path = tuple(names.get(place, place) for place in way)
    rails, crossed = _rails_of(graph, names)
    findings = (
        *_too_far(graph, hops, path, max_hops, complete=complete),
        *_unjoined(graph, parts),
        *_odd_hosts(graph),
        *_crossed_cables(graph, names, rails, crossed),
        *_slow_links(graph, names),
    )
    rest = [host for host in (*order, *sorted((*graph.hosts, *graph.missing), key=natural)) if host not in homes]
    return Fabric(
        source=graph.source,
        switches=_loads_of(graph, names, distances),
        max_hops=hops,
        witness=path,
        rank_order=(*rank_order(distances, homes), *dict.fromkeys(rest)),
        rails=rails,
        parts=tuple(parts) if len(parts) > 1 else (),
        findings=findings,
    )


def unknown_fabric(hosts: Sequence[str]) -> Fabric:
    """Nobody told anything: the hosts as they stand in the inventory."""
    finding = _hops_unknown(
        "nothing tells of the switches: no file, no nodectl_switch, no LLDP on the hosts",
        "give --fabric-from with ibnetdiscover's text or lldpctl's JSON, or set nodectl_switch in the inventory",
    )
    return Fabric("nothing", (), None, (), tuple(hosts), findings=(finding,))


def in_rank_order(hosts: Sequence[Host]) -> tuple[Host, ...]:
    """Sort the hosts so that neighbours of the fabric are next to each other, those without a switch last."""
    is_described = any(name in host.variables for host in hosts for name in ("nodectl_switch", "nodectl_rail"))
    graph = variables_graph(hosts) if is_described else None
    if graph is None:
        return tuple(hosts)
    by_name = {host.name: host for host in hosts}
    order = judge_fabric(graph, list(by_name)).rank_order
    return tuple(by_name[name] for name in order if name in by_name)
