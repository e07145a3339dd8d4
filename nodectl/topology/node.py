"""The inside of one host, from its facts: GPUs, NICs, the links between them, each GPU's NIC, and what limits it.

Each bottleneck is a warning: whether it is a fault, the hardware profile says.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from typing import TypeVar

from nodectl.common.few import few
from nodectl.facts.board import Pcie
from nodectl.facts.gpus import Gpu, Gpus
from nodectl.facts.network import nics_in
from nodectl.facts.parsers.nvidia.smi_topo import NvidiaSmiP2p, NvidiaSmiTopo
from nodectl.facts.rdma import IbPort, ports_in
from nodectl.facts.storage import Mounts
from nodectl.model.facts import Unread
from nodectl.model.finding import Finding
from nodectl.model.host import Host
from nodectl.model.status import Status
from nodectl.model.topology import NEAR, GpuNic, NodeGpu, NodeNic, NodeTopology, between, closeness, joined, meaning
from nodectl.topology.interfaces import TRAINING, Surroundings, servers_of, uses


def _bottlenecks(
    host: str, node: NodeTopology, facts: Mapping[str, object], bus_ids: Mapping[str, str]
) -> Iterator[Finding]:
    """Yield a warning for each bottleneck of a host; health judges the width of PCIe links."""
    yield from _peer_access(host, node, facts.get("p2p"))
    yield from _no_near_nic(host, node)
    yield from _shared_nic(host, node)
    yield from _shared_uplink(host, node, facts.get("pcie"), bus_ids)


def _warning(host: str, check: str, subjects: Sequence[str], actual: str, expected: str, remedy: str) -> Finding:
    return Finding(
        host,
        check,
        Status.WARNING,
        subject=", ".join(subjects),
        expected=expected,
        actual=actual,
        remedy=remedy,
        kind="host",
        hosts=(host,),
    )


def _peer_access(host: str, node: NodeTopology, matrix: object) -> Iterator[Finding]:
    if not isinstance(matrix, NvidiaSmiP2p):
        return
    refused: dict[str, list[tuple[str, str]]] = defaultdict(list)
    pairs = list(combinations(matrix.gpus, 2))
    for pair in pairs:
        status = between(matrix.status, *pair)
        if status and status != "OK":
            refused[status].append(pair)
    for status, listed in refused.items():
        which = "all pairs" if len(listed) == len(pairs) else few(["-".join(pair) for pair in listed], 6)
        actual = f"P2P not available ({status}: {_P2P.get(status, 'refused')})"
        if status != "DR" and all("GeForce" in (gpu.model or "") for gpu in node.gpus):
            # nobody can or need change it
            reason = f"{actual}: GeForce cards copy through the host's memory"
            yield Finding(host, "topology_p2p", Status.OK, which, actual=reason)
            continue
        yield _warning(
            host,
            "topology_p2p",
            [which],
            actual,
            "GPUs read each other's memory",
            "data goes through the host's memory: expect less, or look at ACS, the driver and the cards' kind",
        )


_P2P = {
    "CNS": "chipset not supported",
    "GNS": "GPU not supported",
    "TNS": "topology not supported",
    "NS": "not supported",
    "DR": "disabled by a registry key",
}


def _no_near_nic(host: str, node: NodeTopology) -> Iterator[Finding]:
    far: dict[str, list[str]] = defaultdict(list)
    for gpu, use in node.gpu_nic.items():
        if use.link is not None and closeness(use.link) >= closeness("NODE"):
            far[use.link].append(gpu)
    for link, gpus in far.items():
        yield _warning(
            host,
            "topology_gpu_without_near_nic",
            gpus,
            f"the closest NIC is {link}: {meaning(link)}",
            "a NIC below the same PCIe switch or root port",
            "GPUDirect RDMA will be slow or off there; put ranks that send much on the other GPUs, or move a NIC",
        )


def _shared_nic(host: str, node: NodeTopology) -> Iterator[Finding]:
    users: dict[str, list[str]] = defaultdict(list)
    for gpu, use in node.gpu_nic.items():
        if use.nic is not None:
            users[use.nic].append(gpu)
    ports = {use.nic: len(use.devices) for use in node.gpu_nic.values()}
    shared = {nic: gpus for nic, gpus in users.items() if len(gpus) > ports[nic]}
    if shared:
        most = max(map(len, shared.values()))
        yield _warning(
            host,
            "topology_shared_nic",
            [f"{nic}: {'+'.join(gpus)}" for nic, gpus in shared.items()],
            f"up to {most} GPUs share one NIC",
            "a NIC for each GPU",
            "each gets a part of its rate when all send at once: nothing to do if it was built so",
        )


def _shared_uplink(host: str, node: NodeTopology, pcie: object, bus_ids: Mapping[str, str]) -> Iterator[Finding]:
    names = [gpu.name for gpu in node.gpus]
    pairs = [pair for pair in combinations(names, 2) if _below_one(node, pcie, bus_ids, *pair)]
    unique = {group for group in joined(names, pairs).values() if len(group) > 1}
    groups = sorted([name for name in names if name in group] for group in unique)
    if groups == [sorted(names)]:
        reason = f"all {len(names)} GPUs share one PCIe uplink to the CPU, and its rate when all copy at once"
        yield Finding(host, "topology_shared_uplink", Status.OK, "+".join(groups[0]), actual=reason)
    elif groups:
        yield _warning(
            host,
            "topology_shared_uplink",
            ["+".join(group) for group in groups],
            f"up to {max(map(len, groups))} GPUs share one PCIe uplink to the CPU",
            "an uplink for each GPU",
            "copies from and to the host are slower when all do it at once: nothing to do if it was built so",
        )


def _below_one(node: NodeTopology, pcie: object, bus_ids: Mapping[str, str], a: str, b: str) -> bool:
    """Return whether two GPUs are below one root port: by the PCIe tree, else by the matrix or a NIC near both."""
    if isinstance(pcie, Pcie) and pcie.parents and a in bus_ids and b in bus_ids:
        return bool(set(pcie.above(bus_ids[a])) & set(pcie.above(bus_ids[b])))
    if between(node.links, a, b) in NEAR:
        return True
    nics = [nic.name for nic in node.nics]
    return any(between(node.links, a, nic) in NEAR and between(node.links, b, nic) in NEAR for nic in nics)


# what the picture is made of; what cannot be read is named, and the rest is shown
SUBJECTS = ("gpu_topology", "gpus", "p2p", "pcie", "ib_ports")
T = TypeVar("T")


def _fact(facts: Mapping[str, object], subject: str, kind: type[T]) -> T | None:
    value = facts.get(subject)
    return value if isinstance(value, kind) else None


def node_topology(host: Host, facts: Mapping[str, object], *, recorded: str = "") -> NodeTopology | Unread:
    """Return the host's picture; Unread where its matrix could not be read."""
    matrix = _fact(facts, "gpu_topology", NvidiaSmiTopo)
    if matrix is None:
        missing = facts.get("gpu_topology")
        return missing if isinstance(missing, Unread) else Unread("unknown", "nvidia-smi-topo is not in the recording")
    devices = {nic: matrix.nic_devices.get(nic) or nic for nic in matrix.nics}
    # of a device without known ports only the matrix tells
    ports = ports_in(facts)
    with_ports = {port.device for port in ports}
    ports += tuple(IbPort(device, 1) for device in devices.values() if device not in with_ports)
    port_uses = uses(ports, surroundings(host, facts))
    nics = tuple(_nic(name, device, ports, port_uses) for name, device in devices.items())
    cards = {port.device: port.card for port in ports}
    # by its first port each NIC: two planes of one are no two NICs
    usable: dict[str, tuple[str, ...]] = {}
    first: dict[str, str] = {}
    for nic in nics:
        if nic.use == TRAINING:
            name = first.setdefault(cards[nic.device], nic.name)
            usable[name] = (*usable.get(name, ()), nic.device)
    gpu_nic = assign(matrix.gpus, usable, matrix.links)
    known_gpus = _devices(matrix, _fact(facts, "gpus", Gpus))
    gpus = tuple(_gpu(name, matrix, known_gpus.get(name)) for name in matrix.gpus)
    bus_ids = {name: device.bus_id.lower() for name, device in known_gpus.items() if device.bus_id}
    node = NodeTopology(
        gpus=gpus,
        nics=nics,
        links=matrix.links,
        gpu_nic=gpu_nic,
        bottlenecks=(),
        unknown=tuple(
            f"{subject}: {value.reason}"
            for subject in SUBJECTS
            if isinstance(value := facts.get(subject), Unread) and value.kind == "unknown"
        ),
        recorded=recorded,
    )
    return replace(node, bottlenecks=tuple(_bottlenecks(host.name, node, facts, bus_ids)))


def surroundings(host: Host, facts: Mapping[str, object]) -> Surroundings:
    """Return what tells the host's training ports from the others."""
    matrix, mounts = _fact(facts, "gpu_topology", NvidiaSmiTopo), _fact(facts, "mounts", Mounts)
    chosen = host.variables.get("nodectl_nics")
    return Surroundings(
        nics=nics_in(facts),
        address=host.address,
        chosen=tuple(str(name) for name in chosen) if isinstance(chosen, list) else (),
        servers=servers_of([(mount.kind, mount.source) for mount in mounts.mounts]) if mounts else (),
        gpus=matrix.gpus if matrix else (),
        links=matrix.links if matrix else {},
        devices={nic: matrix.nic_devices.get(nic) or nic for nic in matrix.nics} if matrix else {},
    )


def _nic(name: str, device: str, ports: Sequence[IbPort], port_uses: Mapping[str, str]) -> NodeNic:
    of_device = [port for port in ports if port.device == device]
    best = next((port for port in of_device if port_uses[port.label] == TRAINING), of_device[0])
    return NodeNic(
        name=name,
        device=device,
        numa=None if best.numa_node is None else str(best.numa_node),
        state=best.state,
        rate_gbit_s=best.rate_gbit_s,
        link_layer=best.link_layer,
        use=port_uses[best.label],
    )


def _devices(matrix: NvidiaSmiTopo, gpus: Gpus | None) -> dict[str, Gpu]:
    """GPU0 is the device of index 0; by place where no index is told and none is missing."""
    if gpus is None:
        return {}
    named = {f"GPU{device.index}": device for device in gpus.devices if device.index is not None}
    if named:
        return named
    return dict(zip(matrix.gpus, gpus.devices, strict=True)) if len(matrix.gpus) == len(gpus.devices) else {}


def _gpu(name: str, matrix: NvidiaSmiTopo, device: Gpu | None) -> NodeGpu:
    return NodeGpu(
        name=name,
        model=device.name if device else None,
        numa=matrix.numa_affinity.get(name) or None,
        cpus=matrix.cpu_affinity.get(name) or None,
        pcie_gen=device.pcie_gen_max if device else None,
        pcie_width=device.pcie_width_current if device else None,
        pcie_width_max=device.pcie_width_max if device else None,
    )


def assign(
    gpus: Sequence[str], devices: Mapping[str, tuple[str, ...]], links: Mapping[str, Mapping[str, str]]
) -> dict[str, GpuNic]:
    """Return the NIC of each GPU: its closest one that the fewest others use; GPUs with little choice come first."""
    closest = {}
    for gpu in gpus:
        ranks = {nic: closeness(between(links, gpu, nic)) for nic in devices if between(links, gpu, nic)}
        closest[gpu] = [nic for nic, rank in ranks.items() if rank == min(ranks.values())]
    order = [gpu for gpu in gpus if closest[gpu]]
    order.sort(key=lambda gpu: (closeness(between(links, gpu, closest[gpu][0])), len(closest[gpu])))
    users: Counter[str] = Counter()
    chosen: dict[str, str] = {}
    for gpu in order:
        chosen[gpu] = min(closest[gpu], key=lambda nic: users[nic])
        users[chosen[gpu]] += 1
    return {gpu: _nic_of_gpu(gpu, chosen, closest[gpu], devices, links) for gpu in gpus}


def _nic_of_gpu(
    gpu: str,
    chosen: Mapping[str, str],
    closest: Sequence[str],
    devices: Mapping[str, tuple[str, ...]],
    links: Mapping[str, Mapping[str, str]],
) -> GpuNic:
    nic = chosen.get(gpu)
    if nic is None:
        return GpuNic(None, None, None, "no NIC that RDMA could use")
    link = between(links, gpu, nic)
    others = [other for other, taken in chosen.items() if taken == nic and other != gpu]
    why = f"{link}: {meaning(link)}"
    if len(closest) == 1:
        why += ", the closest" if len(devices) > 1 else ", the only one"
    else:
        why += f", as close as {', '.join(other for other in closest if other != nic)}; shared out evenly"
    if link not in NEAR:
        why += "; none is nearer"
    if others:
        why += f"; also used by {', '.join(others)}"
    if devices[nic][1:]:
        why += f"; with {', '.join(devices[nic][1:])}, ports of one NIC"
    return GpuNic(nic, devices[nic][0], link, why, devices[nic])
