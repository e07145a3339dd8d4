"""The inside of one host, from its facts: GPUs, NICs, the links between them, and the NIC that each GPU uses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

from nodectl.facts.gpus import Gpu, Gpus
from nodectl.facts.network import nics_in
from nodectl.facts.rdma import IbPort, ports_in
from nodectl.facts.storage import Mounts
from nodectl.model.facts import Unread
from nodectl.model.host import Host
from nodectl.model.links import NEAR, between, closeness, meaning
from nodectl.model.topology import GpuNic, NodeGpu, NodeNic, NodeTopology
from nodectl.topology.bottlenecks import Parts, bottlenecks
from nodectl.topology.port_uses import TRAINING, Surroundings, servers_of, uses

if TYPE_CHECKING:
    from nodectl.parsers.nvidia.smi_topo import NvidiaSmiTopo

# what the picture is made of; what cannot be read is named, and the rest is shown
SUBJECTS = ("gpu_topology", "gpus", "p2p", "pcie", "ib_ports")
T = TypeVar("T")


def _fact(facts: Mapping[str, object], subject: str, kind: type[T]) -> T | None:
    """The subject's value; None where it was not read."""
    value = facts.get(subject)
    return value if isinstance(value, kind) else None


def node_topology(host: Host, facts: Mapping[str, object], *, recorded: str = "") -> NodeTopology | Unread:
    """The host's picture; Unread where its matrix could not be read."""
    from nodectl.parsers.nvidia.smi_topo import NvidiaSmiTopo

    matrix = _fact(facts, "gpu_topology", NvidiaSmiTopo)
    if matrix is None:
        missing = facts.get("gpu_topology")
        return missing if isinstance(missing, Unread) else Unread("unknown", "nvidia-smi-topo is not in the recording")
    devices = {nic: matrix.nic_devices.get(nic) or nic for nic in matrix.nics}
    # of a device without known ports only the matrix tells
    ports = ports_in(facts)
    known = {port.device for port in ports}
    ports += tuple(IbPort(device, 1) for device in devices.values() if device not in known)
    port_uses = uses(ports, surroundings(host, facts))
    nics = tuple(_nic(name, device, ports, port_uses) for name, device in devices.items())
    usable = {nic.name: nic.device for nic in nics if nic.use == TRAINING}
    gpu_nic = assign(matrix.gpus, usable, matrix.links)
    known_gpus = _devices(matrix, _fact(facts, "gpus", Gpus))
    gpus = tuple(_gpu(name, matrix, known_gpus.get(name)) for name in matrix.gpus)
    bus_ids = {name: device.bus_id.lower() for name, device in known_gpus.items() if device.bus_id}
    parts = Parts(host.name, gpus, nics, matrix.links, gpu_nic, facts, bus_ids)
    return NodeTopology(
        gpus=gpus,
        nics=nics,
        links=matrix.links,
        gpu_nic=gpu_nic,
        bottlenecks=tuple(bottlenecks(parts)),
        unknown=tuple(
            f"{subject}: {value.reason}"
            for subject in SUBJECTS
            if isinstance(value := facts.get(subject), Unread) and value.kind == "unknown"
        ),
        recorded=recorded,
    )


def surroundings(host: Host, facts: Mapping[str, object]) -> Surroundings:
    """Return what tells the host's training ports from the others."""
    from nodectl.parsers.nvidia.smi_topo import NvidiaSmiTopo

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
    own = [port for port in ports if port.device == device]
    best = next((port for port in own if port_uses[port.label] == TRAINING), own[0])
    return NodeNic(
        name=name,
        device=device,
        numa=None if best.numa_node is None else str(best.numa_node),
        state=best.state,
        rate_gbit_s=best.rate_gbit_s,
        link_layer=best.link_layer,
        use=port_uses[best.label],
    )


def _devices(matrix: NvidiaSmiTopo, known: Gpus | None) -> dict[str, Gpu]:
    """GPU0 is the device of index 0; by place where no index is told and none is missing."""
    if known is None:
        return {}
    named = {f"GPU{device.index}": device for device in known.devices if device.index is not None}
    if named:
        return named
    return dict(zip(matrix.gpus, known.devices, strict=True)) if len(matrix.gpus) == len(known.devices) else {}


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
    gpus: Sequence[str], devices: Mapping[str, str], links: Mapping[str, Mapping[str, str]]
) -> dict[str, GpuNic]:
    """GPU → NIC; `devices` are the usable NICs (name in the matrix → device).

    No NIC gets a second GPU while one that is as close to it has none, and none a third while one has one.
    """
    closest = {gpu: _closest(gpu, devices, links) for gpu in gpus}
    matched = _matched(gpus, closest, links)
    chosen = {gpu: matched[gpu] for gpu in gpus if gpu in matched}
    return {gpu: _gpu_nic(gpu, chosen, closest[gpu], devices, links) for gpu in gpus}


def _closest(gpu: str, devices: Mapping[str, str], links: Mapping[str, Mapping[str, str]]) -> list[str]:
    ranks = {nic: closeness(between(links, gpu, nic)) for nic in devices if between(links, gpu, nic)}
    best = min(ranks.values(), default=0)
    return [nic for nic, rank in ranks.items() if rank == best]


def _matched(
    gpus: Sequence[str], closest: Mapping[str, Sequence[str]], links: Mapping[str, Mapping[str, str]]
) -> dict[str, str]:
    """A matching that grows: one GPU a NIC as long as that goes, then two, and so on; near GPUs choose first."""
    chosen: dict[str, str] = {}
    order = [gpu for gpu in gpus if closest[gpu]]
    order.sort(key=lambda gpu: closeness(between(links, gpu, closest[gpu][0])))
    for share in range(1, len(order) + 1):
        for gpu in order:
            if gpu not in chosen:
                _place(gpu, closest, chosen, share, set())
    return chosen


def _place(gpu: str, closest: Mapping[str, Sequence[str]], chosen: dict[str, str], share: int, tried: set[str]) -> bool:
    """Give `gpu` the least used of its NICs below `share` GPUs, if need be by moving another GPU on."""
    users = {nic: [other for other, taken in chosen.items() if taken == nic] for nic in closest[gpu]}
    free = [nic for nic in closest[gpu] if len(users[nic]) < share]
    if free:
        chosen[gpu] = min(free, key=lambda nic: len(users[nic]))
        return True
    for nic in closest[gpu]:
        if nic not in tried:
            tried.add(nic)
            if any(_place(user, closest, chosen, share, tried) for user in users[nic]):
                chosen[gpu] = nic
                return True
    return False


def _gpu_nic(
    gpu: str,
    chosen: Mapping[str, str],
    closest: Sequence[str],
    devices: Mapping[str, str],
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
    return GpuNic(nic, devices[nic], link, why)
