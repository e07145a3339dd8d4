"""Findings on what differs from the rest of the fabric: hosts, ports, cables and leaves."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import TypeVar

from nodectl.common.counting import counted
from nodectl.common.natural import natural
from nodectl.common.statistics import QUORUM
from nodectl.model.finding import Finding
from nodectl.model.status import Status
from nodectl.model.topology import FabricGraph, SwitchLoad
from nodectl.topology.fabric.limits import FABRIC
from nodectl.topology.fabric.wiring import Rails, names_of

K = TypeVar("K", bound=Hashable)
V = TypeVar("V", bound=Hashable)


def majority(values: Mapping[K, V]) -> V | None:
    """The value that more than half have; None where there is none, or fewer than QUORUM are compared."""
    if len(values) < QUORUM:
        return None
    value, count = Counter(values.values()).most_common(1)[0]
    return value if 2 * count > len(values) else None


def differing(values: Mapping[K, V]) -> dict[K, V]:
    """The entries that differ from the majority; all of them where they differ and there is no majority."""
    usual = majority(values)
    if usual is None:
        return dict(values) if len(set(values.values())) > 1 else {}
    return {key: value for key, value in values.items() if value != usual}


_CABLE = "reseat or replace the cable or its optics, then look at both ports"


def nodes(graph: FabricGraph) -> Iterator[Finding]:
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


def ports(graph: FabricGraph) -> Iterator[Finding]:
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


def trunks(graph: FabricGraph) -> Iterator[Finding]:
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


def crossed(graph: FabricGraph, rails: Rails) -> Iterator[Finding]:
    """Ports that lie on a switch of another rail; not of hosts that number their NICs otherwise than most."""
    names = names_of(graph)
    own = {nic: rail.name for rail in rails.rails for nic in rail.nics}
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
                expected=f"a switch of rail {own.get(port.rail or port.nic, port.rail or port.nic)}",
                remedy="are two cables crossed?",
            )


def sharing(shared: Mapping[str, Mapping[str, tuple[str, ...]]], homes: Mapping[str, object]) -> Iterator[Finding]:
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


def uplinks(loads: Sequence[SwitchLoad]) -> Iterator[Finding]:
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
