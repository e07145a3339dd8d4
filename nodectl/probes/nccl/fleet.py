"""The members of a collective: the hosts that can, the way that NCCL should go on each, and the groups of ranks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from nodectl.facts.catalogue import commands_for, facts_named, read_facts
from nodectl.facts.network import nics_in
from nodectl.facts.rdma import IbPort
from nodectl.model.facts import Unread
from nodectl.model.finding import Finding
from nodectl.model.host import Host
from nodectl.model.recording import Recording
from nodectl.model.status import Status
from nodectl.model.topology import NEAR, NodeTopology, between
from nodectl.probes.base import ProbeOptions, host_finding
from nodectl.probes.endpoints import Endpoint, find_endpoints, without_torch
from nodectl.profiles.links import NVLINK_GB_S, pcie_gb_s
from nodectl.recordings.source import LiveSource
from nodectl.topology.env import training_ports
from nodectl.topology.interfaces import choose
from nodectl.topology.node import SUBJECTS, node_topology
from nodectl.transport.base import Transport

NAME = "nccl"


@dataclass(frozen=True, slots=True)
class Fleet:
    """Hold who takes part, by which backend, and why others do not."""

    ready: tuple[Endpoint, ...]
    backend: str
    findings: tuple[Finding, ...]


def find_fleet(transport: Transport, hosts: Sequence[Host], options: ProbeOptions) -> Fleet:
    """Ask all hosts; those with torch take part."""
    endpoints, findings = find_endpoints(transport, hosts, NAME, options)
    ready = [endpoint for endpoint in endpoints if endpoint.torch]
    lacking = [without_torch(NAME, endpoint.host) for endpoint in endpoints if not endpoint.torch]
    backend = "nccl" if all(map(_uses_gpus, ready)) else "gloo"
    without = [host for host in ready if not _uses_gpus(host)]
    # if the others' GPUs are not measured for their sake, that is said
    for host in without if len(without) < len(ready) else ():
        why = "its torch is built for CPUs" if host.gpus else "it has no GPU"
        actual = f"all are measured over gloo and without GPUs, because {why}"
        remedy = "leave it out with --limit, or look at its driver (`nodectl facts`) and at its torch"
        lacking.append(host_finding(NAME, host.name, Status.WARNING, actual, remedy))
    return Fleet(tuple(ready), backend, (*findings, *lacking))


def _uses_gpus(endpoint: Endpoint) -> bool:
    return bool(endpoint.gpus) and "+cpu" not in (endpoint.torch or "")


def common(values: Mapping[str, object]) -> object:
    """Return the value that all hosts have; by host where they differ."""
    distinct = {str(value) for value in values.values()}
    return next(iter(values.values()), None) if len(distinct) < 2 else dict(values)


WANTED = frozenset({*SUBJECTS, "nvlink", "nics", "mounts", "gids", "versions"})
# cards of this make cannot hand their memory to a NIC
_NO_GPU_DIRECT = "GeForce"


@dataclass(frozen=True, slots=True)
class Route:
    """One host; `unknown` says why nothing is known of it, and nothing else counts then."""

    adapters: tuple[str, ...] = ()
    rates_gb_s: Mapping[str, float] = field(default_factory=dict)
    socket: str = ""
    gpu_direct: bool = False
    nvlink: bool = False
    # what all its GPUs are
    gpu: str = ""
    link_class: str | None = None
    inside_gb_s: float | None = None
    unknown: str = ""

    @property
    def rdma(self) -> bool:
        """Data should leave the host by RDMA."""
        return bool(self.adapters)


def find_routes(transport: Transport, hosts: Sequence[Host], forks: int) -> dict[str, Route]:
    """Ask all hosts once; by name."""
    facts = facts_named(*WANTED)
    facts_of: dict[str, Mapping[str, object]] = {}
    unknown: dict[str, str] = {}
    source = LiveSource(tuple(hosts), transport, forks)
    for host, answer in source.recordings(lambda host: commands_for(host, facts)):
        if isinstance(answer, Recording):
            facts_of[host.name] = read_facts(answer, facts)
        else:
            unknown[host.name] = answer.error or str(answer.outcome)
    routes = routes_of([(host, facts_of[host.name]) for host in hosts if host.name in facts_of])
    return {**routes, **{name: Route(unknown=reason) for name, reason in unknown.items()}}


def routes_of(hosts: Sequence[tuple[Host, Mapping[str, object]]]) -> dict[str, Route]:
    """Return the routes by host, from facts; together, because the socket interface must reach all."""
    ports = {host.name: training_ports(host, facts) for host, facts in hosts}
    sockets = choose([(host, nics_in(facts)) for host, facts in hosts], rdma=all(ports.values()))
    return {host.name: _route(host, facts, ports[host.name], sockets[host.name].interface) for host, facts in hosts}


def _route(host: Host, facts: Mapping[str, object], ports: Sequence[IbPort], socket: str) -> Route:
    read_ports = facts.get("ib_ports")
    if isinstance(read_ports, Unread) and read_ports.kind == "unknown":
        return Route(unknown=f"RDMA ports could not be read: {read_ports.reason}")
    node = node_topology(host, facts)
    rates = {port.device: port.rate_gbit_s / 8 for port in ports if port.rate_gbit_s}
    adapters = tuple(dict.fromkeys(port.device for port in ports))
    if isinstance(node, Unread):
        return Route(adapters=adapters, rates_gb_s=rates, socket=socket)
    near = all(nic.link in NEAR for nic in node.gpu_nic.values()) and bool(node.gpu_nic)
    able = all(_NO_GPU_DIRECT not in (gpu.model or _NO_GPU_DIRECT) for gpu in node.gpus)
    link_class, models = _link_class(node), {gpu.model or "" for gpu in node.gpus}
    return Route(
        adapters=adapters,
        rates_gb_s=rates,
        socket=socket,
        gpu_direct=near and able,
        nvlink=link_class == "nvswitch" or (link_class == "nvlink-bridge" and len(node.gpus) == 2),
        gpu=models.pop() if len(models) == 1 else "",
        link_class=link_class,
        inside_gb_s=_inside_gb_s(node, facts, link_class),
    )


def _link_class(node: NodeTopology) -> str | None:
    """Return it as hardware profiles name it; None for one GPU, or if a link is not told.

    All GPUs joined by NVLink behave as behind one switch; only some of them, in pairs, by bridges.
    """
    names = [gpu.name for gpu in node.gpus]
    links = [between(node.links, a, b) for at, a in enumerate(names) for b in names[at + 1 :]]
    if not links or not all(links):
        return None
    joined = [link.startswith("NV") for link in links]
    if all(joined):
        return "nvswitch" if len(names) > 2 else "nvlink-bridge"
    return "pcie"


def _inside_gb_s(node: NodeTopology, facts: Mapping[str, object], link_class: str | None) -> float | None:
    if link_class in ("nvswitch", "nvlink-bridge"):
        return _nvlink_gb_s(facts.get("nvlink"))
    rates = [rate for gpu in node.gpus if (rate := pcie_gb_s(gpu.pcie_gen, gpu.pcie_width))]
    return min(rates) if len(rates) == len(node.gpus) and rates else None


def _nvlink_gb_s(nvlink: object) -> float | None:
    from nodectl.facts.parsers.nvidia.smi_nvlink import NvidiaSmiNvlink

    if not isinstance(nvlink, NvidiaSmiNvlink):
        return None
    sums = []
    for gpu in nvlink.gpus:
        shown = [link.speed_gb_s or 0.0 for link in gpu.links or () if link.active]
        # what is shown has the links' overhead in it
        sums.append(sum(max((rate for rate in NVLINK_GB_S if rate <= speed), default=speed) for speed in shown))
    return min(sums) if sums and min(sums) > 0 else None


# without GPUs a node by itself has so many ranks
_RANKS_ALONE = 2


@dataclass(frozen=True, slots=True)
class Part:
    """A host's ranks in a group: on these GPUs, or so many on its processors; over `interface` only."""

    endpoint: Endpoint
    ranks: int
    devices: tuple[int, ...] = ()
    interface: str = ""


@dataclass(frozen=True, slots=True)
class Group:
    """Ranks that run one collective together."""

    parts: tuple[Part, ...]

    @property
    def ranks(self) -> int:
        """The number of ranks of all hosts of the group."""
        return sum(part.ranks for part in self.parts)

    @property
    def hosts(self) -> tuple[str, ...]:
        """The names of the group's hosts, in the order of their ranks."""
        return tuple(part.endpoint.name for part in self.parts)

    @property
    def machine(self) -> str:
        """The machine of the first host; that of a group of one host."""
        return self.parts[0].endpoint.machine or self.parts[0].endpoint.name


def _part_of(endpoint: Endpoint, backend: str, *, alone: bool = False) -> Part:
    if backend == "nccl":
        return Part(endpoint, endpoint.gpus, tuple(range(endpoint.gpus)), endpoint.interface)
    return Part(endpoint, _RANKS_ALONE if alone else 1, (), endpoint.interface)


def group_of(ready: Sequence[Endpoint], backend: str) -> Group:
    """One group of all ranks of these hosts."""
    return Group(tuple(_part_of(host, backend) for host in ready))


def node_groups(fleet: Fleet) -> list[Group]:
    """Return a group for each host, of its own ranks only."""
    return [Group((_part_of(host, fleet.backend, alone=True),)) for host in fleet.ready]
