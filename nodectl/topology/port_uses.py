"""The RDMA ports that carry training: not those that are down, bonded, for storage or for management."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import ip_interface

from nodectl.common import system_names
from nodectl.facts.network import Nic
from nodectl.facts.rdma import IbPort
from nodectl.model.links import NEAR, between
from nodectl.topology.interfaces import carries, reaches

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
    main = max(
        sorted(kinds),
        key=lambda kind: _weight([candidate for candidate in ports if candidate.link_layer == kind], around),
    )
    return "" if port.link_layer == main else f"{port.link_layer}, and training is on {main}"


def _weight(ports: Sequence[IbPort], around: Surroundings) -> tuple[int, float]:
    return (sum(_near(port, around) for port in ports), sum(port.rate_gbit_s or 0 for port in ports))


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
    """Return the GPUs below the same PCIe switch or root port as the RDMA port's device."""
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
