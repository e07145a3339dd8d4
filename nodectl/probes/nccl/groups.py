"""Which ranks are measured together: each node by itself, pairs, all hosts, or one rail after the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from nodectl.common.natural import natural
from nodectl.errors import UsageError
from nodectl.probes.nccl.hosts import Fleet, Ready
from nodectl.probes.nccl.routes import Route

# without GPUs a node has so many ranks, or one for each of its NUMA nodes
_RANKS_ALONE = 2


@dataclass(frozen=True, slots=True)
class Part:
    """A host's ranks in a group: on these GPUs, or so many on its processors; over `interface` or `adapter` only."""

    ready: Ready
    ranks: int
    devices: tuple[int, ...] = ()
    interface: str = ""
    adapter: str = ""


@dataclass(frozen=True, slots=True)
class Group:
    """Ranks that run one collective together."""

    parts: tuple[Part, ...]
    rail: str = ""

    @property
    def ranks(self) -> int:
        """The number of ranks of all hosts of the group."""
        return sum(part.ranks for part in self.parts)

    @property
    def hosts(self) -> tuple[str, ...]:
        """The names of the group's hosts, in the order of their ranks."""
        return tuple(part.ready.name for part in self.parts)

    @property
    def machine(self) -> str:
        """The machine of the first host; that of a group of one host."""
        return self.parts[0].ready.machine


def part_of(ready: Ready, backend: str, *, alone: bool = False) -> Part:
    """All GPUs of a host; without, one rank, or several where no other host takes part."""
    if backend == "nccl":
        gpus = ready.endpoint.gpus
        return Part(ready, gpus, tuple(range(gpus)), ready.endpoint.interface)
    return Part(ready, max(_RANKS_ALONE, ready.numa_nodes) if alone else 1, (), ready.endpoint.interface)


def group_of(ready: Sequence[Ready], backend: str) -> Group:
    """One group of all ranks of these hosts."""
    return Group(tuple(part_of(host, backend) for host in ready))


def node_groups(fleet: Fleet) -> list[Group]:
    """A group for each host, of its own ranks only."""
    return [Group((part_of(host, fleet.backend, alone=True),)) for host in fleet.ready]


def rail_groups(fleet: Fleet, routes: Mapping[str, Route]) -> list[Group]:
    """The GPUs beside the NICs of one rail on all hosts, or the interfaces that nodectl_rail puts on it.

    UsageError where nobody says what a rail is.
    """
    rails: dict[str, list[Part]] = {}
    for host in fleet.ready:
        parts = _rails_by_gpu(host, routes[host.name]) if fleet.backend == "nccl" else _rails_by_interface(host)
        for rail, part in parts.items():
            rails.setdefault(rail, []).append(part)
    if not rails:
        remedy = "set nodectl_rail: {eth1: rail0, eth2: rail1} on each host, with its own interfaces or RDMA devices"
        unknown = next((f"{name}: {way.unknown}" for name, way in routes.items() if way.unknown), "")
        raise UsageError(f"no rail is known: {unknown or 'the hosts have no NICs on one'}", remedy)
    return [Group(tuple(rails[rail]), rail) for rail in sorted(rails, key=natural)]


def _rails_by_gpu(ready: Ready, route: Route) -> dict[str, Part]:
    """By the NIC that topology gives each GPU; NICs are on rails by the inventory, else by their order."""
    named = _named(ready)
    order = sorted({nic.device for nic in route.gpu_nic.values() if nic.device}, key=natural)
    rails: dict[str, Part] = {}
    for gpu, nic in sorted(route.gpu_nic.items()):
        if nic.device is None or gpu >= ready.endpoint.gpus:
            continue
        rail = named.get(nic.device) or f"rail{order.index(nic.device)}"
        part = rails.get(rail) or Part(ready, 0, (), ready.endpoint.interface)
        adapters = ",".join(dict.fromkeys([*filter(None, part.adapter.split(",")), nic.device]))
        rails[rail] = replace(part, ranks=part.ranks + 1, devices=(*part.devices, gpu), adapter=adapters)
    return rails


def _rails_by_interface(ready: Ready) -> dict[str, Part]:
    return {rail: Part(ready, 1, (), interface) for interface, rail in _named(ready).items()}


def _named(ready: Ready) -> dict[str, str]:
    """NIC → rail; a single rail is that of the interface by which the host is reached."""
    rails = ready.host.variables.get("nodectl_rail")
    if isinstance(rails, Mapping):
        return {str(nic): str(rail) for nic, rail in rails.items()}
    return {ready.endpoint.interface: str(rails)} if isinstance(rails, str | int) and rails != "" else {}
