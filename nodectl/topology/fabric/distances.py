"""Distances in a fabric, in switches: the farthest two hosts, parts that nothing joins, and an order of close ranks.

They are those of the switches' graph, found by breadth-first search over sets of switches held as bits: 128 hosts
and a few hundred switches take milliseconds.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import inf

from nodectl.common.natural import natural
from nodectl.model.topology import FabricGraph


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
        """These switches as one number: a bit is set for each."""
        number = 0
        for switch in switches:
            number |= 1 << self._index[switch]
        return number

    def levels(self, switch: str) -> list[int]:
        """The switches at distance 0, 1, 2 … from `switch`, and no others; each level as bits."""
        start = self._index[switch]
        if start not in self._levels:
            self._levels[start] = self._search(1 << start)
        return self._levels[start]

    def reach(self, switch: str) -> int:
        """All switches that `switch` is joined with, as bits; itself too."""
        return _up_to(self.levels(switch))

    def nearest(self, switch: str, targets: int) -> int | None:
        """Number of switches on the way from a host at `switch` to one at the nearest of `targets`."""
        for distance, level in enumerate(self.levels(switch)):
            if level & targets:
                return distance + 1
        return None

    def path(self, switch: str, targets: int) -> list[str]:
        """The switches on the way to the nearest of `targets`, the first of several by number."""
        levels = self.levels(switch)
        distance = next(number for number, level in enumerate(levels) if level & targets)
        here = _lowest(levels[distance] & targets)
        way = [here]
        for level in reversed(levels[:distance]):
            here = _lowest(level & self._near[here])
            way.append(here)
        return [self._ids[number] for number in reversed(way)]

    def around(self, switches: Iterable[str]) -> Iterator[list[str]]:
        """These switches, then those one further from the nearest of them, and so on."""
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
    """The switches of each host, hosts in counting order; hosts without one are left out."""
    switches: dict[str, set[str]] = defaultdict(set)
    for attachment in graph.attachments:
        switches[attachment.host].add(attachment.switch)
    return {host: frozenset(switches[host]) for host in sorted(switches, key=natural)}


def farthest(distances: Distances, homes: Mapping[str, frozenset[str]]) -> Farthest:
    """The worst pair of hosts.

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
    """The groups of hosts that can reach one another, largest first; one group where the fabric is whole."""
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
    """The hosts with the same switches, by those switches."""
    classes: dict[frozenset[str], list[str]] = defaultdict(list)
    for host, switches in homes.items():
        classes[switches].append(host)
    return dict(classes)


def _up_to(levels: list[int], count: int | None = None) -> int:
    """The switches of the first levels, or of all, as bits."""
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
