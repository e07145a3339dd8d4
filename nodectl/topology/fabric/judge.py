"""A fabric judged: hops, parts, rails, loads and the order of ranks; findings on its limits and irregularities."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import TypeVar

from nodectl.common.counting import counted
from nodectl.common.few import few
from nodectl.common.natural import natural
from nodectl.common.statistics import QUORUM
from nodectl.model.finding import Finding
from nodectl.model.host import Host
from nodectl.model.status import Status
from nodectl.model.topology import Fabric, FabricGraph, SwitchLoad
from nodectl.topology.fabric.graph import (
    Distances,
    Farthest,
    Rails,
    cables_of,
    farthest,
    homes_of,
    loads_of,
    names_of,
    parts_of,
    rails_of,
    rank_order,
    shared_switches,
)

# the host of a finding that blames no single one
FABRIC = "fabric"
MAX_HOPS = 3
MAX_OVERSUBSCRIPTION = 1.0


@dataclass(frozen=True, slots=True)
class Limits:
    """The operator's limits: switches on the way between two hosts, and capacity below a leaf for each above it."""

    max_hops: int = MAX_HOPS
    max_oversubscription: float = MAX_OVERSUBSCRIPTION


def too_far(
    graph: FabricGraph, count: int | None, path: Sequence[str], limits: Limits, *, complete: bool
) -> Iterator[Finding]:
    """Yield the largest number of switches between two hosts, with the path that has it."""
    expected = f"at most {counted(limits.max_hops, 'switch')} between any two hosts"
    if not complete:
        yield Finding(
            FABRIC,
            "fabric_hops",
            Status.UNKNOWN,
            expected=expected,
            actual=f"{graph.source} shows only the switches beside the hosts, not the cables between switches",
            remedy="give the whole fabric: --fabric-from with ibnetdiscover's text, or lldpctl's JSON of switches too",
        )
    elif not graph.attachments and not graph.direct:
        yield Finding(
            FABRIC,
            "fabric_hops",
            Status.UNKNOWN,
            expected=expected,
            actual=f"{graph.source} shows no host on a switch",
            remedy="is it the output of a fabric with these hosts? Compare the names",
        )
    elif count is not None:
        over = count > limits.max_hops
        yield Finding(
            FABRIC,
            "fabric_hops",
            Status.FAILED if over else Status.OK,
            subject=f"{path[0]} - {path[-1]}",
            action="none",
            expected=expected,
            actual=f"{count}: {' - '.join(path)}",
            remedy="bring both below one spine, or keep a job inside one of them (--limit); --max-hops allows more"
            if over
            else "",
            kind="path",
            hosts=(path[0], path[-1]),
        )


def nothing_known() -> Finding:
    """Return the finding where no source tells of any switch."""
    return Finding(
        FABRIC,
        "fabric_hops",
        Status.UNKNOWN,
        actual="nothing tells of the switches: no file, no nodectl_switch, no LLDP on the hosts",
        remedy="give --fabric-from with ibnetdiscover's text or lldpctl's JSON, or set nodectl_switch in the inventory",
    )


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
        yield Finding(
            host,
            "fabric_host",
            Status.UNKNOWN,
            expected="a port on a switch",
            actual=f"not in {graph.source}",
            remedy="does it carry another name there? Else look at its ports (ibstat), or leave it out with --limit",
            kind="host",
            hosts=(host,),
        )


def oversubscribed(switches: Sequence[SwitchLoad], limits: Limits) -> Iterator[Finding]:
    """Leaves that can take more from their hosts than they can carry away."""
    leaves = [switch for switch in switches if switch.tier == 1 and switch.ratio is not None]
    over = sorted(
        (leaf for leaf in leaves if (leaf.ratio or 0) > limits.max_oversubscription),
        key=lambda switch: -(switch.ratio or 0),
    )
    if over:
        worst = over[0]
        yield Finding(
            FABRIC,
            "fabric_oversubscription",
            Status.WARNING,
            subject=worst.switch,
            expected=f"at most {limits.max_oversubscription:g}:1 of capacity to hosts and to other switches",
            actual=f"{worst.ratio:.2f}:1 ({worst.down_gbit_s:g} Gbit/s below, {worst.up_gbit_s:g} above); "
            f"{len(over)} of {len(leaves)} leaves are over",
            remedy="more uplinks, or jobs inside one leaf; --max-oversubscription if it was built so",
        )


K = TypeVar("K", bound=Hashable)
V = TypeVar("V", bound=Hashable)


def majority(values: Mapping[K, V]) -> V | None:
    """Return the value that more than half have; None where there is none, or fewer than QUORUM are compared."""
    if len(values) < QUORUM:
        return None
    value, count = Counter(values.values()).most_common(1)[0]
    return value if 2 * count > len(values) else None


def differing(values: Mapping[K, V]) -> dict[K, V]:
    """Return the entries that differ from the majority; all of them where they differ and there is no majority."""
    usual = majority(values)
    if usual is None:
        return dict(values) if len(set(values.values())) > 1 else {}
    return {key: value for key, value in values.items() if value != usual}


_CABLE = "reseat or replace the cable or its optics, then look at both ports"


def odd_hosts(graph: FabricGraph) -> Iterator[Finding]:
    """Hosts with another number of ports or switches than most."""
    ports: dict[str, int] = defaultdict(int)
    switches: dict[str, set[str]] = defaultdict(set)
    for attachment in graph.attachments:
        ports[attachment.host] += 1
        switches[attachment.host].add(attachment.switch)
    shapes = {host: (ports[host], len(switches[host])) for host in sorted(ports, key=natural)}
    usual = majority(shapes)
    if usual is None and len(shapes) >= QUORUM and len(set(shapes.values())) > 1:
        counts = Counter(shapes.values()).most_common()
        yield Finding(
            FABRIC,
            "fabric_node",
            Status.WARNING,
            expected="the same on most hosts",
            actual="; ".join(f"{counted(count, 'host')} with {_shape(*shape)}" for shape, count in counts),
            remedy="give the training hosts only: -i with -l",
        )
        return
    for host, shape in differing(shapes).items():
        yield _warning(
            host,
            "fabric_node",
            actual=_shape(*shape),
            expected=f"{_shape(*usual)}, as most hosts" if usual else "the same on both hosts",
            remedy="look at the host's port states (ibstat) and cables",
        )


def slow_ports(graph: FabricGraph) -> Iterator[Finding]:
    """Host ports that are slower than the same NIC of most other hosts."""
    names = names_of(graph)
    by_nic: dict[str, dict[tuple[str, str], float]] = defaultdict(dict)
    for attachment in graph.attachments:
        if attachment.gbit_s is not None:
            by_nic[attachment.nic][attachment.host, attachment.switch] = attachment.gbit_s
    everywhere = {(nic, *where): rate for nic, rates in by_nic.items() for where, rate in rates.items()}
    for attachment in graph.attachments:
        if attachment.gbit_s is None:
            continue
        usual = majority(by_nic[attachment.nic]) or majority(everywhere)
        if usual is not None and attachment.gbit_s < usual:
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
    usual = majority({number: trunk.gbit_s for number, trunk in enumerate(graph.trunks) if trunk.gbit_s is not None})
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


def crossed_cables(graph: FabricGraph, rails: Rails) -> Iterator[Finding]:
    """Ports that lie on a switch of another rail; not of hosts that number their NICs otherwise than most."""
    names = names_of(graph)
    rail_of = {nic: rail.name for rail in rails.rails for nic in rail.nics}
    nics: dict[str, set[str]] = defaultdict(set)
    for attachment in graph.attachments:
        nics[attachment.host].add(attachment.rail or attachment.nic)
    usual = majority({host: frozenset(listed) for host, listed in nics.items()})
    for port, rail in rails.crossed:
        if usual is not None and nics[port.host] <= usual:
            yield _warning(
                port.host,
                "fabric_rail",
                subject=port.nic,
                actual=f"on {names[port.switch]}, a switch of rail {rail}",
                expected=f"a switch of rail {rail_of.get(port.rail or port.nic, port.rail or port.nic)}",
                remedy="are two cables crossed?",
            )


def odd_sharing(shared: Mapping[str, Mapping[str, tuple[str, ...]]], homes: Mapping[str, object]) -> Iterator[Finding]:
    """Hosts with several NICs on one switch where most have each NIC on a switch of its own; else how it is built."""
    does = {host: host in shared for host in homes}
    for host in [host for host in differing(does) if host in shared]:
        yield _warning(
            host,
            "fabric_shared_switch",
            actual=_shared(shared[host]),
            expected="each NIC on a switch of its own, as on the other hosts",
            remedy="are two cables crossed?",
        )
    if shared and majority(does) is not False and not differing(does):
        first = next(iter(shared))
        yield Finding(
            FABRIC,
            "fabric_shared_switch",
            Status.OK,
            actual=f"all hosts have several NICs on one switch, as {first}: {_shared(shared[first])}",
        )


def few_uplinks(loads: Sequence[SwitchLoad]) -> Iterator[Finding]:
    """Switches with fewer cables upwards than most of their tier."""
    for _, same_tier in groupby(sorted(loads, key=lambda load: load.tier), key=lambda load: load.tier):
        tier = list(same_tier)
        usual = majority({load.switch: load.ports_up for load in tier})
        for load in tier:
            if usual is not None and load.ports_up < usual and load.tier:
                yield _warning(
                    FABRIC,
                    "fabric_uplinks",
                    subject=load.switch,
                    actual=counted(load.ports_up, "live cable to other switches", "live cables to other switches"),
                    expected=f"{usual}, as most of tier {load.tier}",
                    remedy="look for ports that are down on it",
                )


def _warning(
    host: str,
    check: str,
    *,
    actual: str,
    expected: str,
    remedy: str,
    subject: str = "",
    kind: str = "host",
    hosts: tuple[str, ...] = (),
) -> Finding:
    return Finding(
        host,
        check,
        Status.WARNING,
        subject=subject,
        expected=expected,
        actual=actual,
        remedy=remedy,
        kind="" if host == FABRIC and kind == "host" else kind,
        hosts=hosts or ((host,) if host != FABRIC else ()),
    )


def _shape(ports: int, switches: int) -> str:
    return f"{counted(ports, 'port')} on {counted(switches, 'switch')}"


def _rate(gbit_s: float, speed: str) -> str:
    return f"{gbit_s:g} Gbit/s ({speed})" if speed else f"{gbit_s:g} Gbit/s"


def _shared(switches: Mapping[str, tuple[str, ...]]) -> str:
    return "; ".join(f"{', '.join(nics)} on {switch}" for switch, nics in switches.items())


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
        *too_far(graph, worst.hops, path, limits, complete=complete),
        *apart(parts),
        *without_name(graph),
        *unseen(graph),
        *odd_hosts(graph),
        *slow_ports(graph),
        *slow_trunks(graph),
        *crossed_cables(graph, rails),
        *odd_sharing(shared, homes),
        *few_uplinks(loads),
        *oversubscribed(loads, limits),
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
    return Fabric("nothing", (), None, (), tuple(hosts), findings=(nothing_known(),))


def in_rank_order(hosts: Sequence[Host], fabric_from: Path | None) -> tuple[Host, ...]:
    """Neighbours of the fabric beside each other; as the inventory has them where nothing tells of the switches.

    Hosts that the file or nodectl_switch does not name come last.
    """
    is_described = any(name in host.variables for host in hosts for name in ("nodectl_switch", "nodectl_rail"))
    if fabric_from is None and not is_described:
        return tuple(hosts)
    from nodectl.topology.fabric.sources import graph_from, variables_graph

    graph = graph_from(fabric_from, hosts, {}) if fabric_from else variables_graph(hosts)
    if graph is None:
        return tuple(hosts)
    by_name = {host.name: host for host in hosts}
    order = judge_fabric(graph, Limits(), list(by_name)).rank_order
    return tuple(by_name[name] for name in order if name in by_name)
