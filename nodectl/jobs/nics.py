"""Which NICs NCCL may use: on each host those of the compute fabric.

NCCL itself takes the NIC nearest to each GPU, of all that are active. So a host gets a list only where NCCL would also
take one that is not for training.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from nodectl.common.few import few
from nodectl.common.nodeset import fold
from nodectl.facts.rdma import ports_in
from nodectl.jobs.plan import Surroundings
from nodectl.model.facts import Unread
from nodectl.model.host import Host
from nodectl.recordings.source import LiveSource
from nodectl.topology.interfaces import TRAINING, uses
from nodectl.topology.look import Looked, look
from nodectl.topology.node import surroundings
from nodectl.transport.base import Transport

_NO_ANSWER = "it did not answer"


@dataclass(frozen=True, slots=True)
class Adapters:
    """A host's NCCL_IB_HCA, empty where NCCL is to choose of all, and why."""

    hca: str = ""
    why: str = ""


def bind_nics(
    transport: Transport, hosts: Sequence[Host], surroundings: Surroundings, forks: int
) -> tuple[Surroundings, tuple[str, ...]]:
    """Give hosts their adapters, with lines that say why; hosts without RDMA devices and GPUs are not asked."""
    asked = tuple(host for host in hosts if host.name in surroundings.rdma_hosts)
    looked = look(LiveSource(asked, transport, forks), (), fabric=False)
    adapters = {host.name: adapters_of(host, looked) for host in asked}
    rows = tuple(
        replace(row, ib_hca=adapters[row.name].hca if row.name in adapters else "") for row in surroundings.hosts
    )
    reasons = dict.fromkeys(adapter.why for adapter in adapters.values() if adapter.why)
    hosts_of = {why: fold(name for name, adapter in adapters.items() if adapter.why == why) for why in reasons}
    lines = tuple(f"NCCL_IB_HCA on {names}: {why}" for why, names in hosts_of.items())
    return replace(surroundings, hosts=rows), lines


def adapters_of(host: Host, looked: Looked) -> Adapters:
    """Return what the host's facts say."""
    facts = looked.facts.get(host.name)
    if facts is None:
        return Adapters(why=next((one.actual for one in looked.findings if one.host == host.name), "") or _NO_ANSWER)
    read = facts.get("ib_ports")
    if read is None or isinstance(read, Unread):
        return Adapters(why=f"no RDMA ports: {read.reason if read else 'they were not asked for'}")
    port_uses = uses(ports_in(facts), surroundings(host, facts))
    if any(port.is_efa for port in ports_in(facts)):
        return Adapters(why="EFA is reached through NCCL's libfabric plugin, which does not read it")
    ports = [port for port in ports_in(facts) if port_uses[port.label] == TRAINING]
    if not ports:
        excluded = few([f"{name} ({use})" for name, use in port_uses.items()])
        return Adapters(why=f"no RDMA port is fit for training: {excluded}")
    # those that are down NCCL leaves out by itself
    others = [f"{name} ({use})" for name, use in port_uses.items() if use != TRAINING and not use.startswith("down")]
    # the sign asks for these very names: else mlx5_1 is also mlx5_10
    names = "=" + ",".join(f"{port.device}:{port.port}" for port in ports)
    return Adapters(names, f"without {few(others)}") if others else Adapters()
