"""What RDMA there is on each host, asked before anything is measured."""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from nodectl.facts.rdma import Gid, IbPort
from nodectl.model.finding import Finding
from nodectl.probes.base import ProbeOptions
from nodectl.probes.endpoints import Endpoint, Look, ask_all
from nodectl.probes.events import Event
from nodectl.probes.rdma.argv import NAME
from nodectl.transport.base import Transport

_DEADLINE_S = 90.0
_VERSIONS = {"RoCE v2": "v2", "IB/RoCE v1": "v1", "RoCE v1": "v1"}


@dataclass(frozen=True, slots=True)
class Port(IbPort):
    """One RDMA port with what a test needs of it; `refused` is why a program cannot open its device, "" where it can.

    `pci` is the device's path below /sys/devices, `networks` are those that its interface reaches without a router.
    """

    carrier_changes: int | None = None
    cpus: tuple[int, ...] = ()
    pci: str | None = None
    gids: tuple[Gid, ...] = ()
    networks: tuple[str, ...] = ()
    refused: str = ""

    @property
    def is_ethernet(self) -> bool:
        """RoCE, where a GID must be chosen."""
        return self.link_layer == "Ethernet"


@dataclass(frozen=True, slots=True)
class Program:
    """One of perftest's on a host, and which of its options of interest it has."""

    version: str | None
    options: Collection[str] = ()


@dataclass(frozen=True, slots=True)
class Gpus:
    """NVIDIA's: how many the bus has, where those with a driver sit, and how a NIC can read their memory."""

    on_bus: int = 0
    paths: tuple[str, ...] = ()
    peermem: bool = False
    open_modules: bool = False


@dataclass(frozen=True, slots=True)
class Site:
    """A host's side: its address, ports, programs; `memlock_bytes` None is no limit."""

    endpoint: Endpoint
    ports: tuple[Port, ...]
    adapters: tuple[str, ...] = ()
    programs: Mapping[str, Program] = field(default_factory=dict)
    memlock_bytes: int | None = None
    gpus: Gpus = Gpus()

    @property
    def name(self) -> str:
        """The name of the host."""
        return self.endpoint.host.name


def find_sites(
    transport: Transport, endpoints: Sequence[Endpoint], programs: Sequence[str], options: ProbeOptions
) -> tuple[list[Site], list[Finding]]:
    """The sites of the hosts that answer, in the order of the endpoints, and a finding for each that does not."""
    by_host = {endpoint.host: endpoint for endpoint in endpoints}
    look = Look("probes.rdma.probe", lambda _: ["look", "--programs", ",".join(programs)], "rdma", _DEADLINE_S)
    return ask_all(
        transport, list(by_host), NAME, look, lambda host, answer: site_of(by_host[host], answer), options.forks
    )


def site_of(endpoint: Endpoint, answer: Event) -> Site:
    """The payload's answer as a value."""
    gpus, limit = answer["gpus"], answer["memlock"]
    locked = None if limit["exempt"] or limit["soft"] < 0 else int(limit["soft"])
    return Site(
        endpoint=endpoint,
        ports=tuple(_port(port) for port in answer["ports"]),
        adapters=tuple(answer["adapters"]),
        programs={
            name: Program(program["version"], tuple(program["options"])) for name, program in answer["programs"].items()
        },
        memlock_bytes=locked,
        gpus=Gpus(gpus["on_bus"], tuple(gpus["paths"]), gpus["peermem"], gpus["open_modules"]),
    )


def _port(answer: Event) -> Port:
    verbs = answer["verbs"]
    same = ("device", "port", "state", "physical_state", "rate_gbit_s", "link_layer", "netdev", "carrier_changes")
    return Port(
        **{name: answer[name] for name in (*same, "numa_node", "pci")},
        cpus=tuple(answer["cpus"]),
        gids=tuple(_gid(answer, gid) for gid in answer["gids"]),
        networks=tuple(answer["networks"]),
        mtu_active=verbs.get("mtu") if verbs else None,
        mtu_max=verbs.get("mtu_max") if verbs else None,
        refused="libibverbs is not installed" if verbs is None else verbs.get("error", ""),
    )


def _gid(port: Event, gid: Event) -> Gid:
    mapped = ipaddress.IPv6Address(gid["gid"]).ipv4_mapped
    return Gid(
        port["device"],
        port["port"],
        gid["index"],
        gid["gid"],
        _VERSIONS.get(gid["type"] or "") if port["link_layer"] == "Ethernet" else None,
        gid["netdev"],
        str(mapped) if mapped else None,
    )
