"""What RDMA there is on each host, asked before anything is measured."""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from nodectl.facts.gids import Gid
from nodectl.model.finding import Finding
from nodectl.model.status import Status
from nodectl.probes.base import ProbeOptions, host_finding
from nodectl.probes.endpoints import Endpoint, failure
from nodectl.probes.events import Event, Events
from nodectl.transport.base import Transport
from nodectl.transport.fanout import fan_out
from nodectl.transport.payload import run_payload

NAME = "rdma"
_DEADLINE_S = 90.0
_VERSIONS = {"RoCE v2": "v2", "IB/RoCE v1": "v1", "RoCE v1": "v1"}


@dataclass(frozen=True, slots=True)
class Port:
    """One RDMA port; `refused` is why a program cannot open its device, "" where it can."""

    device: str
    port: int
    state: str | None = None
    physical_state: str | None = None
    rate_gbit_s: float | None = None
    link_layer: str | None = None
    netdev: str | None = None
    carrier_changes: int | None = None
    numa_node: int | None = None
    cpus: tuple[int, ...] = ()
    pci: str | None = None
    gids: tuple[Gid, ...] = ()
    mtu: int | None = None
    mtu_max: int | None = None
    refused: str = ""

    @property
    def label(self) -> str:
        """`mlx5_0/1`, as `rdma link` writes it."""
        return f"{self.device}/{self.port}"

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
    found = dict(fan_out(endpoints, lambda each: _ask(transport, each, programs), options.forks))
    told = [found[endpoint] for endpoint in endpoints]
    return [event for event in told if isinstance(event, Site)], [event for event in told if isinstance(event, Finding)]


def _ask(transport: Transport, endpoint: Endpoint, programs: Sequence[str]) -> Site | Finding:
    events = Events()
    args = ["look", "--programs", ",".join(programs)]
    done = run_payload(transport, endpoint.host, "probe_rdma", args, timeout_s=_DEADLINE_S, on_output=events.add)
    answers = events.of("rdma")
    if done.ok and answers:
        return site_of(endpoint, answers[0])
    return host_finding(NAME, endpoint.host.name, Status.UNKNOWN, *failure(done, events))


def site_of(endpoint: Endpoint, answer: Event) -> Site:
    """The payload's answer as a value."""
    gpus, limit = answer["gpus"], answer["memlock"]
    locked = None if limit["exempt"] or limit["soft"] < 0 else int(limit["soft"])
    return Site(
        endpoint=endpoint,
        ports=tuple(_port(each) for each in answer["ports"]),
        adapters=tuple(answer["adapters"]),
        programs={name: Program(each["version"], tuple(each["options"])) for name, each in answer["programs"].items()},
        memlock_bytes=locked,
        gpus=Gpus(gpus["on_bus"], tuple(gpus["paths"]), gpus["peermem"], gpus["open_modules"]),
    )


def _port(told: Event) -> Port:
    verbs = told["verbs"]
    same = ("device", "port", "state", "physical_state", "rate_gbit_s", "link_layer", "netdev", "carrier_changes")
    return Port(
        **{name: told[name] for name in (*same, "numa_node", "pci")},
        cpus=tuple(told["cpus"]),
        gids=tuple(_gid(told, event) for event in told["gids"]),
        mtu=verbs.get("mtu") if verbs else None,
        mtu_max=verbs.get("mtu_max") if verbs else None,
        refused="libibverbs is not installed" if verbs is None else verbs.get("error", ""),
    )


def _gid(port: Event, told: Event) -> Gid:
    mapped = ipaddress.IPv6Address(told["gid"]).ipv4_mapped
    return Gid(
        port["device"],
        port["port"],
        told["index"],
        told["gid"],
        _VERSIONS.get(told["type"] or "") if port["link_layer"] == "Ethernet" else None,
        told["netdev"],
        str(mapped) if mapped else None,
    )
