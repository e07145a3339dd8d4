"""Which NICs NCCL may use: on each host those of the compute fabric, and by request for each rank the one at its GPU.

NCCL itself takes the NIC nearest to each GPU, of all that are active. So a host gets a list only where NCCL would also
take one that is not for training; a rank gets its own only where that is asked for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from nodectl.common.few import few
from nodectl.common.nodeset import fold
from nodectl.errors import JobError
from nodectl.facts.rdma import IbPort, ports_in
from nodectl.jobs.plan import GPU, NONE, PlanHost, Surroundings
from nodectl.model.facts import Unread
from nodectl.model.host import Host
from nodectl.model.topology import NodeTopology
from nodectl.recordings.source import LiveSource
from nodectl.topology.interfaces import TRAINING, uses
from nodectl.topology.look import Looked, look
from nodectl.topology.node import surroundings
from nodectl.transport.base import Transport

_NO_ANSWER = "it did not answer"


@dataclass(frozen=True, slots=True)
class Adapters:
    """A host's NCCL_IB_HCA, empty where NCCL is to choose of all, and why; `by_gpu` in the order of its GPUs.

    `lacking`: why there is no `by_gpu`, where that is known.
    """

    hca: str = ""
    why: str = ""
    by_gpu: tuple[str, ...] = ()
    lacking: str = ""


def bind_nics(
    transport: Transport, hosts: Sequence[Host], surroundings: Surroundings, mode: str, nproc: int | None, forks: int
) -> tuple[Surroundings, tuple[str, ...]]:
    """Give hosts their adapters, with lines that say why; hosts without RDMA devices and GPUs are not asked.

    JobError if each rank's own is asked for (`gpu`) and cannot be told; then all hosts are asked.
    """
    asked = tuple(host for host in hosts if mode == GPU or host.name in surroundings.rdma_hosts)
    if mode == NONE or not asked:
        return surroundings, ()
    looked = look(LiveSource(asked, transport, forks), (), fabric=False)
    adapters = {host.name: adapters_of(host, looked) for host in asked}
    if mode == GPU:
        _refuse({name: _lacking(adapter, nproc or 1) for name, adapter in adapters.items()})
    rows = tuple(_bound(row, adapters.get(row.name), mode) for row in surroundings.hosts)
    return replace(surroundings, hosts=rows), () if mode == GPU else _lines(adapters)


def _bound(row: PlanHost, adapters: Adapters | None, mode: str) -> PlanHost:
    if adapters is None:
        return row
    return replace(row, gpu_hcas=adapters.by_gpu) if mode == GPU else replace(row, ib_hca=adapters.hca)


def _lines(adapters: Mapping[str, Adapters]) -> tuple[str, ...]:
    """Return `NCCL_IB_HCA on node[01-04]: …`, a line for hosts alike; nothing of those where NCCL may take all."""
    reasons = dict.fromkeys(adapter.why for adapter in adapters.values() if adapter.why)
    hosts = {why: [name for name, adapter in adapters.items() if adapter.why == why] for why in reasons}
    return tuple(f"NCCL_IB_HCA on {fold(names)}: {why}" for why, names in hosts.items())


def _refuse(problems: Mapping[str, str]) -> None:
    refusals = {name: problem for name, problem in problems.items() if problem}
    if refusals:
        reasons = dict.fromkeys(refusals.values())
        parts = [f"{fold(name for name in refusals if refusals[name] == reason)}: {reason}" for reason in reasons]
        raise JobError(f"--nic-binding gpu: {'; '.join(parts)}", "leave it out: NCCL takes the nearest NIC by itself")


def _lacking(adapters: Adapters, ranks: int) -> str:
    if not adapters.by_gpu:
        return adapters.lacking or "the matrix of GPUs and NICs was not read, or a GPU has no NIC"
    return "" if ranks <= len(adapters.by_gpu) else f"{ranks} ranks, and {len(adapters.by_gpu)} GPUs"


def adapters_of(host: Host, looked: Looked) -> Adapters:
    """Return what the host's facts say."""
    facts = looked.facts.get(host.name)
    if facts is None:
        return _none(next((one.actual for one in looked.findings if one.host == host.name), "") or _NO_ANSWER)
    read = facts.get("ib_ports")
    if read is None or isinstance(read, Unread):
        return _none(f"no RDMA ports: {read.reason if read else 'they were not asked for'}")
    port_uses = uses(ports_in(facts), surroundings(host, facts))
    if any(port.is_efa for port in ports_in(facts)):
        return _none("EFA is reached through NCCL's libfabric plugin, which does not read it")
    ports = [port for port in ports_in(facts) if port_uses[port.label] == TRAINING]
    if not ports:
        excluded = few([f"{name} ({use})" for name, use in port_uses.items()])
        return _none(f"no RDMA port is fit for training: {excluded}")
    by_gpu = _by_gpu(looked.nodes.get(host.name), ports)
    # those that are down NCCL leaves out by itself
    others = [f"{name} ({use})" for name, use in port_uses.items() if use != TRAINING and not use.startswith("down")]
    if others:
        return Adapters(_value(ports), f"without {few(others)}", by_gpu)
    return Adapters(by_gpu=by_gpu)


def _none(why: str) -> Adapters:
    return Adapters(why=why, lacking=why)


def _by_gpu(node: NodeTopology | None, ports: Sequence[IbPort]) -> tuple[str, ...]:
    """Return, by GPU, the ports of its NIC; () if one has none."""
    if node is None:
        return ()
    devices = [node.gpu_nic[gpu.name].devices for gpu in node.gpus]
    values = [_value([port for port in ports if port.device in each]) for each in devices]
    return tuple(values) if all(len(value) > 1 for value in values) else ()


def _value(ports: Sequence[IbPort]) -> str:
    """Return `=mlx5_0:1,mlx5_1:1`; the sign asks for these very names, for else mlx5_1 is also mlx5_10."""
    return "=" + ",".join(f"{port.device}:{port.port}" for port in ports)
