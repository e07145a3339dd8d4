"""A fabric's graph, measured and judged: hops, parts, rails, loads, the order of ranks; findings on all that is odd."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any, TypeVar

from nodectl.common.counting import counted
from nodectl.common.few import few
from nodectl.common.natural import natural
from nodectl.common.statistics import QUORUM
from nodectl.model.finding import Finding
from nodectl.model.host import Host
from nodectl.model.status import Status
from nodectl.model.topology import Attachment, Fabric, FabricGraph, Rail, SwitchLoad
from nodectl.topology.fabric.sources import variables_graph
from nodectl.topology.groups import joined


@dataclass(frozen=True, slots=True)
class Farthest:
    """The worst pair: how many switches, and the path from host to host; None and empty if no two are joined."""

    hops: int | None
    path: tuple[str, ...]


class Distances:
    """Distances between the switches to which hosts are attached."""

    def __init__(self, graph: FabricGraph) -> None:
        self._place = {switch.id: place for place, switch in enumerate(graph.switches)}
        self._near: dict[str, set[str]] = {switch: set() for switch in self._place}
        for trunk in graph.trunks:
            self._near[trunk.a].add(trunk.b)
            self._near[trunk.b].add(trunk.a)
        self._known: dict[str, dict[str, float]] = {}

    def from_switch(self, switch: str) -> dict[str, float]:
        """Return the number of switches on the way from `switch` to each, 1 to itself; inf where no way leads."""
        if switch not in self._known:
            ways = dict.fromkeys(self._place, inf)
            for count, level in enumerate(self.around([switch]), 1):
                ways |= dict.fromkeys(level, count)
            self._known[switch] = ways
        return self._known[switch]

    def nearest(self, switch: str, targets: Iterable[str]) -> float:
        """Return the number of switches on the way from a host at `switch` to one at the nearest of `targets`."""
        return min(map(self.from_switch(switch).__getitem__, targets))

    def path(self, switch: str, targets: Iterable[str]) -> list[str]:
        """Return the switches on the way to the nearest of `targets`, the first of several in the graph's order."""
        ways = self.from_switch(switch)
        here = min(targets, key=lambda target: (ways[target], self._place[target]))
        way = [here]
        while here != switch:
            closer = (other for other in self._near[here] if ways[other] < ways[here])
            here = min(closer, key=self._place.__getitem__)
            way.append(here)
        return way[::-1]

    def around(self, switches: Iterable[str]) -> Iterator[set[str]]:
        """Yield these switches, then those one further from the nearest of them, and so on."""
        level = set(switches)
        left = self._near.keys() - level
        while level:
            yield level
            level = {switch for switch in left if not self._near[switch].isdisjoint(level)}
            left -= level


def homes_of(graph: FabricGraph) -> dict[str, frozenset[str]]:
    """Return the switches of each host, hosts in counting order; hosts without one are left out."""
    switches: dict[str, set[str]] = defaultdict(set)
    for attachment in graph.attachments:
        switches[attachment.host].add(attachment.switch)
    return {host: frozenset(switches[host]) for host in sorted(switches, key=natural)}


def farthest(distances: Distances, homes: Mapping[str, frozenset[str]]) -> Farthest:
    """Return the worst pair of hosts, each port counting towards the other host's nearest port.

    A pair of hosts with rails is as far apart as its worst rail. Ports without any way are the parts' matter.
    """
    classes = _classes(homes)
    worst, ends = 0, ("", "", "")
    for ours, members in classes.items():
        for switch in sorted(ours, key=natural):
            for theirs, others in classes.items():
                hops = distances.nearest(switch, theirs)
                if worst < hops < inf and (ours != theirs or len(members) > 1):
                    worst, ends = int(hops), (members[0], switch, others[1] if ours == theirs else others[0])
    if not worst:
        return Farthest(None, ())
    first, switch, second = ends
    return Farthest(worst, (first, *distances.path(switch, homes[second]), second))


def parts_of(graph: FabricGraph, homes: Mapping[str, frozenset[str]]) -> list[tuple[str, ...]]:
    """Return the groups of hosts that can reach one another, largest first; one group where the fabric is whole."""
    islands: dict[frozenset[str], list[str]] = defaultdict(list)
    island_of = joined({switch.id for switch in graph.switches}, [(trunk.a, trunk.b) for trunk in graph.trunks])
    for host, switches in homes.items():
        for island in {island_of[switch] for switch in switches}:
            islands[island].append(host)
    groups = [frozenset(hosts) for hosts in islands.values()]
    groups += [frozenset(pair) for pair in graph.direct]
    groups += [frozenset([host]) for host in set(graph.hosts).difference(homes, *graph.direct)]
    unique = set(groups)
    largest = [part for part in unique if not any(part < other for other in unique)]
    return sorted((tuple(sorted(part, key=natural)) for part in largest), key=lambda part: (-len(part), part))


def _classes(homes: Mapping[str, frozenset[str]]) -> dict[frozenset[str], list[str]]:
    """Return the hosts with the same switches, by those switches."""
    classes: dict[frozenset[str], list[str]] = defaultdict(list)
    for host, switches in homes.items():
        classes[switches].append(host)
    return dict(classes)


def rank_order(distances: Distances, homes: Mapping[str, frozenset[str]]) -> tuple[str, ...]:
    """All hosts, those with the same switches in the order of `homes`, then those nearest to them."""
    groups = _classes(homes)
    counted = {group: number for number, group in enumerate(groups)}
    left = set(groups)
    order: list[str] = []
    here = next(iter(groups), None)
    while here is not None:
        left.discard(here)
        order += groups[here]
        ours = here
        here = min(left, key=lambda group: (*_apart(distances, ours, group), counted[group]), default=None)
    return tuple(order)


def _apart(distances: Distances, ours: frozenset[str], theirs: frozenset[str]) -> tuple[float, float]:
    """Return how far two groups are: the worst of their ports, then all of them; endlessly far if no way leads."""
    lengths = [distances.nearest(switch, theirs) for switch in ours]
    return (max(lengths), sum(lengths))


def names_of(graph: FabricGraph) -> dict[str, str]:
    """Each switch's name; with its id behind where two have the same."""
    times = Counter(switch.name for switch in graph.switches)
    return {
        switch.id: switch.name if times[switch.name] == 1 else f"{switch.name} ({switch.id})"
        for switch in graph.switches
    }


def tiers_of(graph: FabricGraph) -> dict[str, int]:
    """1 for a switch with hosts, 2 for those above it, and so on; 0 if no way leads to a host."""
    tiers = dict.fromkeys((switch.id for switch in graph.switches), 0)
    leaves = {attachment.switch for attachment in graph.attachments}
    for tier, switches in enumerate(Distances(graph).around(leaves), 1):
        tiers |= dict.fromkeys(switches, tier)
    return tiers


def loads_of(graph: FabricGraph) -> tuple[SwitchLoad, ...]:
    """Each switch's ports towards hosts and away from them, by tier and name."""
    names, tiers = names_of(graph), tiers_of(graph)
    down: Counter[str] = Counter()
    up: Counter[str] = Counter()
    hosts: dict[str, set[str]] = defaultdict(set)
    for port in graph.attachments:
        down[port.switch] += 1
        hosts[port.switch].add(port.host)
    for trunk in graph.trunks:
        for here, there in ((trunk.a, trunk.b), (trunk.b, trunk.a)):
            # a cable between equals leads away from the hosts of both
            (down if tiers[there] < tiers[here] else up)[here] += 1
    loads = [SwitchLoad(names[switch], tiers[switch], len(hosts[switch]), down[switch], up[switch]) for switch in names]
    return tuple(sorted(loads, key=lambda load: (load.tier, natural(load.switch))))


# ports that lie on another rail's switch, each with the rail that it joins wrongly
_Crossed = tuple[tuple[Attachment, str], ...]


def rails_of(graph: FabricGraph) -> tuple[tuple[Rail, ...], _Crossed]:
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
    names = names_of(graph)
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


# the host of a finding that blames no single one
FABRIC = "fabric"
MAX_HOPS = 3


def too_far(
    graph: FabricGraph, count: int | None, path: Sequence[str], max_hops: int, *, complete: bool
) -> Iterator[Finding]:
    """Yield the largest number of switches between two hosts, with the path that has it."""
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
        yield Finding(
            FABRIC,
            "fabric_hops",
            Status.FAILED if count > max_hops else Status.OK,
            subject=f"{path[0]} - {path[-1]}",
            expected=expected,
            actual=f"{count}: {' - '.join(path)}",
            remedy=over if count > max_hops else "",
            kind="path",
            hosts=(path[0], path[-1]),
        )


def _hops_unknown(actual: str, remedy: str, expected: str = "") -> Finding:
    return Finding(FABRIC, "fabric_hops", Status.UNKNOWN, expected=expected, actual=actual, remedy=remedy)


def apart(groups: Sequence[Sequence[str]]) -> Iterator[Finding]:
    """Hosts between which no way leads."""
    if len(groups) > 1:
        yield Finding(
            FABRIC,
            "fabric_partitioned",
            Status.FAILED,
            expected="a way between any two hosts",
            actual=f"{len(groups)} parts without a way between them: {'; '.join(few(group) for group in groups)}",
            remedy="look at the cables and port states between the parts' switches",
            hosts=tuple(group[0] for group in groups),
        )


def without_name(graph: FabricGraph) -> Iterator[Finding]:
    """Adapters of which nobody can tell whose they are."""
    if graph.nameless:
        yield Finding(
            FABRIC,
            "fabric_nameless",
            Status.UNKNOWN,
            expected="each adapter carries its host's name, and no other adapter the same",
            actual=f"{len(graph.nameless)} without: {few(graph.nameless)}",
            remedy="on that host: restart rdma-ndd, or write the node description (/sys/class/infiniband/*/node_desc)",
        )


def unseen(graph: FabricGraph) -> Iterator[Finding]:
    """Hosts of the inventory that the source does not know."""
    for host in graph.missing:
        yield _warning(
            host,
            "fabric_host",
            status=Status.UNKNOWN,
            expected="a port on a switch",
            actual=f"not in {graph.source}",
            remedy="does it carry another name there? Else look at its ports (ibstat), or leave it out with --limit",
        )


V = TypeVar("V", bound=Hashable)


def majority(values: Iterable[V]) -> V | None:
    """Return the value that more than half have; None if there is none, or fewer than QUORUM are compared."""
    counts = Counter(values)
    value, count = next(iter(counts.most_common(1)), (None, 0))
    return value if counts.total() >= QUORUM and 2 * count > counts.total() else None


_CABLE = "reseat or replace the cable or its optics, then look at both ports"


def odd_hosts(graph: FabricGraph) -> Iterator[Finding]:
    """Hosts with another number of ports or switches than most."""
    switches: dict[str, list[str]] = defaultdict(list)
    for attachment in graph.attachments:
        switches[attachment.host].append(attachment.switch)
    shapes = {host: (len(switches[host]), len(set(switches[host]))) for host in sorted(switches, key=natural)}
    usual = majority(shapes.values())
    for host, shape in shapes.items():
        if usual is not None and shape != usual:
            yield _warning(
                host,
                "fabric_node",
                actual=_shape(*shape),
                expected=f"{_shape(*usual)}, as most hosts",
                remedy="look at the host's port states (ibstat) and cables",
            )


def slow_ports(graph: FabricGraph) -> Iterator[Finding]:
    """Host ports that are slower than the same NIC of most other hosts."""
    names = names_of(graph)
    by_nic: dict[str, list[float]] = defaultdict(list)
    for attachment in graph.attachments:
        if attachment.gbit_s is not None:
            by_nic[attachment.nic].append(attachment.gbit_s)
    everywhere = majority(rate for rates in by_nic.values() for rate in rates)
    for attachment in graph.attachments:
        usual = majority(by_nic[attachment.nic]) or everywhere
        if usual is not None and attachment.gbit_s is not None and attachment.gbit_s < usual:
            yield _warning(
                attachment.host,
                "fabric_port_rate",
                subject=attachment.nic,
                actual=f"{_rate(attachment.gbit_s, attachment.speed)} to {names[attachment.switch]}",
                expected=f"{usual:g} Gbit/s, as most others",
                remedy=_CABLE,
            )


def slow_trunks(graph: FabricGraph) -> Iterator[Finding]:
    """Cables between switches that are slower than most."""
    names = names_of(graph)
    usual = majority(trunk.gbit_s for trunk in graph.trunks if trunk.gbit_s is not None)
    for trunk in graph.trunks:
        if usual is not None and trunk.gbit_s is not None and trunk.gbit_s < usual:
            ends = (names[trunk.a], names[trunk.b])
            yield _warning(
                FABRIC,
                "fabric_trunk_rate",
                subject=" - ".join(ends),
                actual=_rate(trunk.gbit_s, trunk.speed),
                expected=f"{usual:g} Gbit/s, as most others",
                remedy=_CABLE,
                kind="path",
                hosts=ends,
            )


def crossed_cables(graph: FabricGraph, rails: Sequence[Rail], crossed: _Crossed) -> Iterator[Finding]:
    """Ports that lie on a switch of another rail; not of hosts that number their NICs otherwise than most."""
    names = names_of(graph)
    rail_of = {nic: rail.name for rail in rails for nic in rail.nics}
    nics: dict[str, set[str]] = defaultdict(set)
    for attachment in graph.attachments:
        nics[attachment.host].add(attachment.label)
    usual = majority(frozenset(listed) for listed in nics.values())
    for port, rail in crossed:
        if usual is not None and nics[port.host] <= usual:
            yield _warning(
                port.host,
                "fabric_rail",
                subject=port.nic,
                actual=f"on {names[port.switch]}, a switch of rail {rail}",
                expected=f"a switch of rail {rail_of.get(port.label, port.label)}",
                remedy="are two cables crossed?",
            )


def _warning(host: str, check: str, **said: Any) -> Finding:
    """Return a finding with these fields, by default a warning; of a host, unless that is FABRIC."""
    of_host = {} if host == FABRIC else {"kind": "host", "hosts": (host,)}
    return Finding(host, check, **{"status": Status.WARNING, **of_host, **said})


def _shape(ports: int, switches: int) -> str:
    return f"{counted(ports, 'port')} on {counted(switches, 'switch')}"


def _rate(gbit_s: float, speed: str) -> str:
    return f"{gbit_s:g} Gbit/s ({speed})" if speed else f"{gbit_s:g} Gbit/s"


def judge_fabric(graph: FabricGraph, order: Sequence[str] = (), max_hops: int = MAX_HOPS) -> Fabric:
    """All that can be told from the graph; hosts of which nothing is known come last, as `order` has them."""
    homes = homes_of(graph)
    distances = Distances(graph)
    complete = graph.trunks_known or len(set(homes.values())) < 2
    parts = parts_of(graph, homes) if complete else []
    worst = farthest(distances, homes) if complete else Farthest(None, ())
    if worst.hops is None and graph.direct and not homes:
        worst = Farthest(0, graph.direct[0])
    names = names_of(graph)
    path = tuple(names.get(place, place) for place in worst.path)
    loads, (rails, crossed) = loads_of(graph), rails_of(graph)
    findings = (
        *too_far(graph, worst.hops, path, max_hops, complete=complete),
        *apart(parts),
        *without_name(graph),
        *unseen(graph),
        *odd_hosts(graph),
        *crossed_cables(graph, rails, crossed),
        *slow_ports(graph),
        *slow_trunks(graph),
    )
    rest = [host for host in (*order, *sorted((*graph.hosts, *graph.missing), key=natural)) if host not in homes]
    return Fabric(
        source=graph.source,
        switches=loads,
        max_hops=worst.hops,
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
