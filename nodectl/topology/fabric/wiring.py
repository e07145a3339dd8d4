"""What the cables of a fabric add up to: tiers, loads, rails, and hosts with several NICs on one switch."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from nodectl.common.natural import natural
from nodectl.model.topology import Attachment, FabricGraph, Rail, SwitchLoad
from nodectl.topology.fabric.distances import Distances
from nodectl.topology.groups import joined


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
    known = [rate for rate in listed if rate is not None]
    return sum(known) if len(known) == len(listed) else None


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
    """host → switch → its NICs there, where it has more than one."""
    names = names_of(graph)
    nics_on: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for port in graph.attachments:
        nics_on[port.host][names[port.switch]].append(port.nic)
    several = {
        host: {switch: tuple(sorted(nics, key=natural)) for switch, nics in switches.items() if len(nics) > 1}
        for host, switches in nics_on.items()
    }
    return {host: several[host] for host in sorted(several, key=natural) if several[host]}
