"""Addresses of network interfaces, and the interface by which each host reaches all others."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import (
    IPv4Address,
    IPv4Interface,
    IPv4Network,
    IPv6Address,
    IPv6Interface,
    IPv6Network,
    ip_address,
    ip_interface,
)

from nodectl.common import system_names
from nodectl.common.system_names import VIRTUAL
from nodectl.facts.network import Nic
from nodectl.facts.rdma import IbPort
from nodectl.model.host import Host
from nodectl.model.topology import NEAR, between

Network = IPv4Network | IPv6Network


def interfaces_of(nic: Nic) -> Iterator[IPv4Interface | IPv6Interface]:
    """Yield an interface's addresses with their networks, without link-local ones."""
    for text in nic.addresses:
        try:
            interface = ip_interface(text)
        except ValueError:
            continue
        if not interface.ip.is_link_local:
            yield interface


def networks_of(nic: Nic) -> set[Network]:
    """Return the networks that it is in; a network of one address is none."""
    return {interface.network for interface in interfaces_of(nic) if interface.network.num_addresses > 1}


def carries(nic: Nic, address: str) -> bool:
    """`address` is one of its own; False for what is not an address, such as a name."""
    return _parsed(address) in [interface.ip for interface in interfaces_of(nic)]


def reaches(nic: Nic, address: str) -> bool:
    """`address` is in one of its networks; False for what is not an address, such as a name."""
    wanted = _parsed(address)
    return wanted is not None and any(wanted in network for network in networks_of(nic))


def _parsed(address: str) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(address)
    except ValueError:
        return None


@dataclass(frozen=True, slots=True)
class SocketInterface:
    """The interface and why; `interface` is empty if none can be told, or (`alone`) none is needed."""

    interface: str
    why: str
    alone: bool = False


def choose(hosts: Sequence[tuple[Host, Mapping[str, Nic]]], *, rdma: bool) -> dict[str, SocketInterface]:
    """Each host's interface, by host name; with `rdma` sockets serve the start-up alone, and need no fast network."""
    usable = {
        host.name: [
            nic
            for nic in nics.values()
            if _up(nic) and not nic.name.startswith(("lo", *VIRTUAL)) and any(interfaces_of(nic))
        ]
        for host, nics in hosts
    }
    network = _common(hosts, usable, rdma=rdma)
    return {host.name: _chosen(host, usable[host.name], network, len(hosts)) for host, _ in hosts}


def by_itself(nics: Mapping[str, Nic]) -> list[str]:
    """Return what NCCL takes if nobody tells it: InfiniBand's, else all but the loopback and docker's."""
    names = [nic.name for nic in nics.values() if _up(nic) and nic.addresses]
    infiniband = [name for name in names if name.startswith("ib")]
    return infiniband or [name for name in names if not name.startswith(("lo", "docker"))]


def _up(nic: Nic) -> bool:
    return nic.state.upper() in ("UP", "UNKNOWN") and nic.carrier is not False


def _common(
    hosts: Sequence[tuple[Host, Mapping[str, Nic]]], usable: Mapping[str, list[Nic]], *, rdma: bool
) -> Network | None:
    shared: set[Network] | None = None
    for nics in usable.values():
        here = {network for nic in nics for network in networks_of(nic)}
        shared = here if shared is None else shared & here
    used = [face for nics in usable.values() for nic in nics for face in interfaces_of(nic)]
    inside = {network: [face.ip for face in used if face.network == network] for network in shared or ()}
    real = [network for network, addresses in inside.items() if len(set(addresses)) == len(addresses)]
    addresses = {host.name: host.address for host, _ in hosts}

    def quality(network: Network) -> tuple[float, bool, float, int, str]:
        homes = {name: _in(nics, network) for name, nics in usable.items()}
        slowest = min((nic.speed_mbit or 0 for nic in homes.values() if nic), default=0)
        managed = sum(nic is not None and carries(nic, addresses[name]) for name, nic in homes.items())
        first, second = (managed, slowest) if rdma else (slowest, managed)
        plain = not any(nic and nic.name.startswith("ib") for nic in homes.values())
        # sockets over InfiniBand are the last choice where data goes by RDMA; IPv4 before IPv6, then any fixed order
        return (first, rdma and plain, second, -network.version, str(network))

    return max(real, key=quality, default=None)


def _in(nics: Sequence[Nic], network: Network) -> Nic | None:
    return next((nic for nic in nics if network in networks_of(nic)), None)


def _chosen(host: Host, nics: Sequence[Nic], network: Network | None, count: int) -> SocketInterface:
    if count == 1:
        return SocketInterface("", "one host alone has no other to reach", alone=True)
    inside = _in(nics, network) if network else None
    if inside is not None:
        speed = f", {inside.speed_mbit} Mbit/s" if inside.speed_mbit else ""
        return SocketInterface(inside.name, f"{inside.name} is in {network}, in which all {count} hosts are{speed}")
    managed = next((nic for nic in nics if carries(nic, host.address)), None)
    if managed is not None:
        why = f"no network holds all hosts; {managed.name} carries {host.address}, by which the inventory reaches it"
        return SocketInterface(managed.name, why)
    if len(nics) == 1:
        return SocketInterface(nics[0].name, f"{nics[0].name} is the only interface that is up with an address")
    return SocketInterface("", "no network holds all hosts, and no interface carries the inventory's address")


TRAINING = "training"


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The signs by which a host's ports differ; `chosen` are the inventory's nodectl_nics, `servers` of its storage."""

    nics: Mapping[str, Nic] = field(default_factory=dict)
    address: str = ""
    chosen: tuple[str, ...] = ()
    servers: tuple[str, ...] = ()
    gpus: tuple[str, ...] = ()
    links: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    devices: Mapping[str, str] = field(default_factory=dict)


def uses(ports: Sequence[IbPort], around: Surroundings) -> dict[str, str]:
    """`mlx5_0/1` → training, or why not."""
    excluded: dict[str, str] = {}
    left = list(ports)
    for rule, spares in _RULES:
        out = {port.label: reason for port in left if (reason := rule(port, left, around))}
        # a guess never takes the last port away
        if spares and len(out) == len(left):
            continue
        excluded |= out
        left = [port for port in left if port.label not in out]
    return {port.label: excluded.get(port.label, TRAINING) for port in ports}


_Rule = Callable[[IbPort, Sequence[IbPort], Surroundings], str]


def _down(port: IbPort, _ports: Sequence[IbPort], _around: Surroundings) -> str:
    if port.state is None or port.state.upper() == "ACTIVE":
        return ""
    return f"down: {port.state}" + (f", {port.physical_state}" if port.physical_state else "")


def _bond(port: IbPort, _ports: Sequence[IbPort], around: Surroundings) -> str:
    nic = around.nics.get(port.netdev or "")
    master = around.nics.get(nic.master or "") if nic else None
    if "bond" in port.device.lower() or (nic and nic.kind == "bond") or (master and master.kind == "bond"):
        return "bond"
    return ""


def _unchosen(port: IbPort, _ports: Sequence[IbPort], around: Surroundings) -> str:
    if not around.chosen or {port.device, port.netdev} & set(around.chosen):
        return ""
    return "not among the inventory's nodectl_nics"


def _storage(port: IbPort, _ports: Sequence[IbPort], around: Surroundings) -> str:
    nic = around.nics.get(port.netdev or "")
    served = next((server for server in around.servers if nic and reaches(nic, server)), None)
    return f"storage: {port.netdev} is the way to {served}" if served else ""


def _management(port: IbPort, _ports: Sequence[IbPort], around: Surroundings) -> str:
    nic = around.nics.get(port.netdev or "")
    if nic is None or not carries(nic, around.address):
        return ""
    return f"management: {port.netdev} carries {around.address}, the host's address in the inventory"


def _other_kind(port: IbPort, ports: Sequence[IbPort], around: Surroundings) -> str:
    """Return why a port is out whose kind is not training's: that beside the GPUs, else the faster one."""
    kinds = {candidate.link_layer for candidate in ports if candidate.link_layer}
    if len(kinds) < 2 or port.link_layer is None:
        return ""

    def weight(kind: str) -> tuple[int, float]:
        of_kind = [candidate for candidate in ports if candidate.link_layer == kind]
        return sum(_near(one, around) for one in of_kind), sum(one.rate_gbit_s or 0 for one in of_kind)

    main = max(sorted(kinds), key=weight)
    return "" if port.link_layer == main else f"{port.link_layer}, and training is on {main}"


def _slower(port: IbPort, ports: Sequence[IbPort], around: Surroundings) -> str:
    rates = [candidate.rate_gbit_s for candidate in ports if candidate.rate_gbit_s is not None]
    # one beside a GPU that came up slow is a fault to be seen, not another use
    if port.rate_gbit_s is None or port.rate_gbit_s >= max(rates) or _near(port, around):
        return ""
    return f"{port.rate_gbit_s:g} of {max(rates):g} Gbit/s: storage or management"


def _beside_no_gpu(port: IbPort, ports: Sequence[IbPort], around: Surroundings) -> str:
    served = {gpu for candidate in ports for gpu in _neighbours(candidate, around)}
    # a GPU without a near NIC would need one that is far from all
    if _near(port, around) or not served or served != set(around.gpus):
        return ""
    return "beside no GPU, and each GPU has another beside it: storage or management"


def _near(port: IbPort, around: Surroundings) -> bool:
    return bool(_neighbours(port, around))


def _neighbours(port: IbPort, around: Surroundings) -> set[str]:
    names = [name for name, device in around.devices.items() if device == port.device]
    return {gpu for gpu in around.gpus for name in names if between(around.links, gpu, name) in NEAR}


# the first two are certain; what follows is told from signs
_RULES: tuple[tuple[_Rule, bool], ...] = (
    (_down, False),
    (_bond, False),
    (_unchosen, False),
    (_storage, True),
    (_management, True),
    (_other_kind, True),
    (_beside_no_gpu, True),
    (_slower, True),
)


def servers_of(mounts: Sequence[tuple[str, str]]) -> tuple[str, ...]:
    """Return storage servers' addresses from (kind, source) of mounts: `10.0.5.1:/export`, `10.0.5.1@o2ib:/fs`."""
    servers = []
    for kind, source in mounts:
        if kind in system_names.NETWORK:
            server = source.lstrip("/").split(":/")[0].split("@")[0].split(",")[0].strip("[]")
            try:
                servers.append(str(ip_interface(server).ip))
            except ValueError:
                continue
    return tuple(dict.fromkeys(servers))
