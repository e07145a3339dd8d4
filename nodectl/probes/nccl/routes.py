"""Which way NCCL should go on each host, by its topology and the environment that is derived from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from nodectl.facts.catalogue import commands_for, facts_named, read_facts
from nodectl.facts.network import nics_in
from nodectl.facts.rdma import IbPort
from nodectl.model.facts import Unread
from nodectl.model.host import Host
from nodectl.model.links import NEAR, between
from nodectl.model.recording import Recording
from nodectl.model.topology import GpuNic, NodeTopology
from nodectl.recordings.source import LiveSource
from nodectl.topology.env import training_ports
from nodectl.topology.node import SUBJECTS, node_topology
from nodectl.topology.socket_interface import choose
from nodectl.transport.base import Transport

WANTED = frozenset({*SUBJECTS, "nvlink", "nics", "mounts", "gids", "versions"})
# GB/s each way of an NVLink: of the first generation, of the second to fourth, of the fifth. nvidia-smi shows this, or
# the signalling rate, which is up to 6 % more (26.562 on an H100)
_NVLINK_GB_S = (20.0, 25.0, 50.0)
# GB/s each way of a lane, by generation: PCI-SIG's rates less the coding
_PCIE_LANE_GB_S = {1: 0.25, 2: 0.5, 3: 0.985, 4: 1.969, 5: 3.938, 6: 7.563}
# cards of this make cannot hand their memory to a NIC
_NO_GPU_DIRECT = "GeForce"


@dataclass(frozen=True, slots=True)
class Route:
    """One host; `unknown` says why nothing is known of it, and nothing else counts then."""

    adapters: tuple[str, ...] = ()
    rates_gb_s: Mapping[str, float] = field(default_factory=dict)
    socket: str = ""
    gpu_nic: Mapping[int, GpuNic] = field(default_factory=dict)
    gpu_direct: bool = False
    nvlink: bool = False
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
    known = routes_of([(host, facts_of[host.name]) for host in hosts if host.name in facts_of])
    return {**known, **{name: Route(unknown=reason) for name, reason in unknown.items()}}


def routes_of(hosts: Sequence[tuple[Host, Mapping[str, object]]]) -> dict[str, Route]:
    """From facts; together, because the socket interface must reach all."""
    ports = {host.name: training_ports(host, facts) for host, facts in hosts}
    sockets = choose([(host, nics_in(facts)) for host, facts in hosts], rdma=all(ports.values()))
    return {host.name: _one(host, facts, ports[host.name], sockets[host.name].interface) for host, facts in hosts}


def _one(host: Host, facts: Mapping[str, object], ports: Sequence[IbPort], socket: str) -> Route:
    read_ports = facts.get("ib_ports")
    if isinstance(read_ports, Unread) and read_ports.kind == "unknown":
        return Route(unknown=f"RDMA ports could not be read: {read_ports.reason}")
    node = node_topology(host, facts)
    rates = {port.device: port.rate_gbit_s / 8 for port in ports if port.rate_gbit_s}
    adapters = tuple(dict.fromkeys(port.device for port in ports))
    if isinstance(node, Unread):
        return Route(adapters=adapters, rates_gb_s=rates, socket=socket)
    by_index = {int(name[3:]): nic for name, nic in node.gpu_nic.items() if name[3:].isdigit()}
    near = all(nic.link in NEAR for nic in by_index.values()) and bool(by_index)
    able = all(_NO_GPU_DIRECT not in (gpu.model or _NO_GPU_DIRECT) for gpu in node.gpus)
    link_class = _link_class(node)
    return Route(
        adapters=adapters,
        rates_gb_s=rates,
        socket=socket,
        gpu_nic=by_index,
        gpu_direct=near and able,
        nvlink=link_class == "nvswitch" or (link_class == "nvlink-bridge" and len(node.gpus) == 2),
        link_class=link_class,
        inside_gb_s=_inside_gb_s(node, facts, link_class),
    )


def _link_class(node: NodeTopology) -> str | None:
    """Return it as hardware profiles name it; None for one GPU, or where a link is not told.

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
    """Return what a GPU's links to the others carry each way; of the GPU that has least."""
    if link_class in ("nvswitch", "nvlink-bridge"):
        return _nvlink_gb_s(facts.get("nvlink"))
    rates = [
        _PCIE_LANE_GB_S[gpu.pcie_gen] * gpu.pcie_width
        for gpu in node.gpus
        if gpu.pcie_gen in _PCIE_LANE_GB_S and gpu.pcie_width
    ]
    return min(rates) if len(rates) == len(node.gpus) and rates else None


def _nvlink_gb_s(nvlink: object) -> float | None:
    from nodectl.parsers.nvidia.smi_nvlink import NvidiaSmiNvlink

    if not isinstance(nvlink, NvidiaSmiNvlink):
        return None
    sums = [sum(_data_gb_s(link.speed_gb_s or 0.0) for link in gpu.links or () if link.active) for gpu in nvlink.gpus]
    return min(sums) if sums and min(sums) > 0 else None


def _data_gb_s(shown: float) -> float:
    return max((rate for rate in _NVLINK_GB_S if rate <= shown), default=shown)
