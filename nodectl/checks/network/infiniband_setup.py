"""Whether active RDMA ports are set up for use: subnet manager, MTU, RoCE addresses."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from nodectl.checks.check import Check, Subject, judges
from nodectl.checks.network.infiniband import is_active, ports_of, rdma_of_profile, serving
from nodectl.checks.network.nics import training_names
from nodectl.facts.gids import Gid
from nodectl.model.finding import Finding
from nodectl.model.status import Status

ORDER = 220

IB_SUBNET_MANAGER = Check(
    "ib_subnet_manager",
    looks_at="active InfiniBand ports",
    fires="no lid, or no subnet manager",
    expected="a lid, and a subnet manager's",
    remedy="see `sminfo` there, and start a subnet manager (opensm) in the fabric",
)
IB_MTU = Check(
    "ib_mtu",
    looks_at="active ports",
    fires="warning: a smaller MTU than the device can have",
    expected="as large as the device can",
    remedy="raise the MTU of the interface (RoCE: 4200 or more for 4096) or of the partition (InfiniBand)",
)


@judges(IB_SUBNET_MANAGER, IB_MTU, reads=("ib_ports",))
def managed(host: Subject) -> Iterator[Finding]:
    """Active InfiniBand ports have a subnet manager and a lid, and the MTU that they can have."""
    yield from host.unknown(host.facts.get("ib_ports"), "the ports", IB_SUBNET_MANAGER, IB_MTU)
    ports = [port for port in ports_of(host) if is_active(port)]
    fabric = [port for port in ports if port.link_layer == "InfiniBand"]
    lost = (
        host.finding(
            IB_SUBNET_MANAGER,
            Status.UNKNOWN if port.lid is None else Status.FAILED,
            port.label,
            actual=f"lid {_lid(port.lid)}, subnet manager's {_lid(port.sm_lid)}",
        )
        for port in fabric
        # who has a lid was set up by a subnet manager, even where a tool does not name it
        if not port.lid or port.sm_lid == 0
    )
    if fabric:
        yield from host.all_of(IB_SUBNET_MANAGER, lost, expected="one", actual=f"{len(fabric)} ports have one")
    small = (
        host.finding(IB_MTU, Status.WARNING, port.label, expected=f"{port.mtu_max}", actual=f"{port.mtu_active}")
        for port in serving(host)
        if is_active(port) and port.mtu_active and port.mtu_max and port.mtu_active < port.mtu_max
    )
    if any(port.mtu_active for port in ports):
        yield from host.all_of(IB_MTU, small, actual="so on all")


def _lid(lid: int | None) -> str:
    return "not told" if lid is None else str(lid)


GID_V2 = Check(
    "gid_v2",
    looks_at="active RoCE ports that a job would use",
    fires="no RoCE v2 GID of an IPv4 address",
    expected="a RoCE v2 GID of an IPv4 address",
)


@judges(GID_V2, reads=("gids", "ib_ports"))
def roce(host: Subject) -> Iterator[Finding]:
    """Each active RoCE port has a GID of version 2 with an IPv4 address."""
    gids = host.facts.get("gids")
    if any(each.kind == "roce" for each in rdma_of_profile(host)):
        yield from host.unknown(host.facts.get("ib_ports"), "a RoCE v2 GID", GID_V2)
    ports = [port for port in serving(host) if port.link_layer == "Ethernet" and is_active(port)]
    needed = any(each.kind == "roce" for each in rdma_of_profile(host)) or bool(training_names(host))
    if not ports or not needed:
        return
    expected = "a RoCE v2 GID of an IPv4 address"
    if not isinstance(gids, Sequence):
        yield from host.unread(GID_V2, gids, expected)
        return
    good = {(each.device, each.port) for each in gids if isinstance(each, Gid) and _is_v2(each)}
    without = (
        host.finding(
            GID_V2,
            Status.FAILED,
            port.label,
            actual="none",
            remedy=f"give {port.netdev or 'its interface'} an IPv4 address; `show_gids` there lists what it has",
        )
        for port in ports
        if (port.device, port.port) not in good
    )
    yield from host.all_of(GID_V2, without, actual=f"{len(ports)} ports have one")


def _is_v2(gid: Gid) -> bool:
    return (gid.version or "").lower().endswith("v2") and bool(gid.ipv4)
