"""Measures of a fabric's graph: distances in switches, parts, close ranks; tiers, loads, rails and shared switches.

Distances are found by breadth-first search over sets of switches held as bits: 128 hosts and a few hundred switches
take milliseconds.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import inf

from nodectl.common.natural import natural
from nodectl.model.topology import Attachment, FabricGraph, Rail, SwitchLoad
from nodectl.topology.groups import joined


@dataclass(frozen=True, slots=True)
class Farthest:
    """The worst pair: how many switches, and the path from host to host; None and empty where no two are joined."""

    hops: int | None
    path: tuple[str, ...]


class Distances:
    """Distances between the switches to which hosts are attached."""

    def __init__(self, graph: FabricGraph) -> None:
        ids = [switch.id for switch in graph.switches]
        self._index = {name: number for number, name in enumerate(ids)}
        self._ids = ids
        self._near = [0] * len(ids)
        for trunk in graph.trunks:
            a, b = self._index[trunk.a], self._index[trunk.b]
            self._near[a] |= 1 << b
            self._near[b] |= 1 << a
        self._levels: dict[int, list[int]] = {}

    def bits(self, switches: Iterable[str]) -> int:
        """Return these switches as one number: a bit is set for each."""
        number = 0
        for switch in switches:
            number |= 1 << self._index[switch]
        return number

    def levels(self, switch: str) -> list[int]:
        """Return the switches at distance 0, 1, 2 … from `switch`, and no others; each level as bits."""
        start = self._index[switch]
        if start not in self._levels:
            self._levels[start] = self._search(1 << start)
        return self._levels[start]

    def reach(self, switch: str) -> int:
        """All switches that `switch` is joined with, as bits; itself too."""
        return _up_to(self.levels(switch))

    def nearest(self, switch: str, targets: int) -> int | None:
        """Return the number of switches on the way from a host at `switch` to one at the nearest of `targets`."""
        for distance, level in enumerate(self.levels(switch)):
            if level & targets:
                return distance + 1
        return None

    def path(self, switch: str, targets: int) -> list[str]:
        """Return the switches on the way to the nearest of `targets`, the first of several by number."""
        levels = self.levels(switch)
        distance = next(number for number, level in enumerate(levels) if level & targets)
        here = _lowest(levels[distance] & targets)
        way = [here]
        for level in reversed(levels[:distance]):
            here = _lowest(level & self._near[here])
            way.append(here)
        return [self._ids[number] for number in reversed(way)]

    def around(self, switches: Iterable[str]) -> Iterator[list[str]]:
        """Yield these switches, then those one further from the nearest of them, and so on."""
        for level in self._search(self.bits(switches)):
            yield [self._ids[number] for number in _ones(level)]

    def _search(self, start: int) -> list[int]:
        frontier = seen = start
        levels = []
        while frontier:
            levels.append(frontier)
            beyond = 0
            for number in _ones(frontier):
                beyond |= self._near[number]
            frontier = beyond & ~seen
            seen |= frontier
        return levels


def homes_of(graph: FabricGraph) -> dict[str, frozenset[str]]:
    """Return the switches of each host, hosts in counting order; hosts without one are left out."""
    switches: dict[str, set[str]] = defaultdict(set)
    for attachment in graph.attachments:
        switches[attachment.host].add(attachment.switch)
    return {host: frozenset(switches[host]) for host in sorted(switches, key=natural)}


def farthest(distances: Distances, homes: Mapping[str, frozenset[str]]) -> Farthest:
    """Return the worst pair of hosts.

    Each port of a host counts, towards that port of the other host that is nearest to it: a pair of hosts with a rail
    of their own is as far apart as its worst rail.  Ports without any way to the other host are the parts' matter.
    """
    classes = _classes(homes)
    worst, ends = 0, ("", "", "")
    for ours, members in classes.items():
        for switch in sorted(ours, key=natural):
            levels = distances.levels(switch)
            within = _up_to(levels, worst)
            reach = distances.reach(switch)
            for theirs, others in classes.items():
                targets = distances.bits(theirs)
                if targets & within or not targets & reach or (ours == theirs and len(members) < 2):
                    continue
                worst = distances.nearest(switch, targets) or worst
                within = _up_to(levels, worst)
                ends = (members[0], switch, others[1] if ours == theirs else others[0])
    if not worst:
        return Farthest(None, ())
    first, switch, second = ends
    return Farthest(worst, (first, *distances.path(switch, distances.bits(homes[second])), second))


def parts_of(graph: FabricGraph, distances: Distances, homes: Mapping[str, frozenset[str]]) -> list[tuple[str, ...]]:
    """Return the groups of hosts that can reach one another, largest first; one group where the fabric is whole."""
    islands: dict[int, list[str]] = defaultdict(list)
    for host, switches in homes.items():
        for island in {distances.reach(switch) for switch in switches}:
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


def _up_to(levels: list[int], count: int | None = None) -> int:
    """Return the switches of the first levels, or of all, as bits."""
    switches = 0
    for level in levels[:count]:
        switches |= level
    return switches


def _ones(bits: int) -> Iterator[int]:
    while bits:
        lowest = bits & -bits
        yield lowest.bit_length() - 1
        bits ^= lowest


def _lowest(bits: int) -> int:
    return (bits & -bits).bit_length() - 1


def rank_order(distances: Distances, homes: Mapping[str, frozenset[str]]) -> tuple[str, ...]:
    """All hosts, those with the same switches in counting order, then those nearest to them; always the same order.

    `homes` are in counting order, as `homes_of` gives them.
    """
    groups = _classes(homes)
    counted = {group: number for number, group in enumerate(groups)}
    bits = {group: distances.bits(group) for group in groups}
    left = set(groups)
    order: list[str] = []
    here = next(iter(groups), None)
    while here is not None:
        left.discard(here)
        order += groups[here]
        ours = here
        here = min(left, key=lambda group: (*_apart(distances, ours, bits[group]), counted[group]), default=None)
    return tuple(order)


def _apart(distances: Distances, ours: frozenset[str], theirs: int) -> tuple[float, float]:
    """How far two groups are: the worst of their ports, then all of them; endlessly far where no way leads."""
    ways = [distances.nearest(switch, theirs) for switch in ours]
    lengths = [inf if way is None else way for way in ways]
    return (max(lengths), sum(lengths))


def names_of(graph: FabricGraph) -> dict[str, str]:
    """Each switch's name; with its id behind where two have the same."""
    times = Counter(switch.name for switch in graph.switches)
    return {
        switch.id: switch.name if times[switch.name] == 1 else f"{switch.name} ({switch.id})"
        for switch in graph.switches
    }


def cables_of(graph: FabricGraph) -> tuple[tuple[str, str, int], ...]:
    """(switch, switch, how many cables between them), each pair once."""
    names = names_of(graph)
    pairs: Counter[tuple[str, ...]] = Counter(tuple(sorted((names[trunk.a], names[trunk.b]))) for trunk in graph.trunks)
    return tuple((pair[0], pair[1], count) for pair, count in sorted(pairs.items()))


def tiers_of(graph: FabricGraph) -> dict[str, int]:
    """1 for a switch with hosts, 2 for those above it, and so on; 0 where no way leads to a host."""
    tiers = dict.fromkeys((switch.id for switch in graph.switches), 0)
    leaves = {attachment.switch for attachment in graph.attachments}
    for tier, switches in enumerate(Distances(graph).around(leaves), 1):
        tiers |= dict.fromkeys(switches, tier)
    return tiers


def loads_of(graph: FabricGraph) -> tuple[SwitchLoad, ...]:
    """Each switch's capacity towards hosts and away from them, by tier and name."""
    names, tiers = names_of(graph), tiers_of(graph)
    down: dict[str, list[float | None]] = defaultdict(list)
    up: dict[str, list[float | None]] = defaultdict(list)
    hosts: dict[str, set[str]] = defaultdict(set)
    for port in graph.attachments:
        down[port.switch].append(port.gbit_s)
        hosts[port.switch].add(port.host)
    for trunk in graph.trunks:
        for here, there in ((trunk.a, trunk.b), (trunk.b, trunk.a)):
            # a cable between equals leads away from the hosts of both
            (down if tiers[there] < tiers[here] else up)[here].append(trunk.gbit_s)
    loads = [_load(names[switch], tiers[switch], len(hosts[switch]), down[switch], up[switch]) for switch in names]
    return tuple(sorted(loads, key=lambda load: (load.tier, natural(load.switch))))


def _load(name: str, tier: int, hosts: int, down: list[float | None], up: list[float | None]) -> SwitchLoad:
    below, above = _sum(down), _sum(up)
    ratio = below / above if below and above else None
    return SwitchLoad(name, tier, hosts, len(down), len(up), below, above, ratio)


def _sum(rates: Iterable[float | None]) -> float | None:
    listed = list(rates)
    told_rates = [rate for rate in listed if rate is not None]
    return sum(told_rates) if len(told_rates) == len(listed) else None


@dataclass(frozen=True, slots=True)
class Rails:
    """The rails, and the ports that lie on another rail's switch, each with the rails that it joins wrongly."""

    rails: tuple[Rail, ...]
    crossed: tuple[tuple[Attachment, str], ...]


def rails_of(graph: FabricGraph) -> Rails:
    """Ports that share switches, by the source's rail or the NIC's name; none where the NICs of a host are mixed."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for port in graph.attachments:
        counts[port.switch][_label(port)] += 1
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
        return Rails((), ())
    rails = []
    for group, switches in on.items():
        nics = tuple(sorted(group, key=natural))
        rails.append(Rail("+".join(nics), nics, tuple(sorted(switches, key=natural))))
    title = {label: rail.name for rail in rails for label in rail.nics}
    crossed = [
        (port, title[regular[port.switch]])
        for port in graph.attachments
        if groups[_label(port)] != groups[regular[port.switch]]
    ]
    return Rails(tuple(sorted(rails, key=lambda rail: natural(rail.name))), tuple(crossed))


def _label(port: Attachment) -> str:
    return port.rail or port.nic


def shared_switches(graph: FabricGraph) -> Mapping[str, Mapping[str, tuple[str, ...]]]:
    """Return host → switch → its NICs there, where it has more than one."""
    names = names_of(graph)
    nics_on: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for port in graph.attachments:
        nics_on[port.host][names[port.switch]].append(port.nic)
    several = {
        host: {switch: tuple(sorted(nics, key=natural)) for switch, nics in switches.items() if len(nics) > 1}
        for host, switches in nics_on.items()
    }
    return {host: several[host] for host in sorted(several, key=natural) if several[host]}
