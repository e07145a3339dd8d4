"""Each host's NCCL environment from what is there, with the reason for every variable, and for every one left out."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence

from nodectl.common.few import few
from nodectl.facts.network import nics_in
from nodectl.facts.rdma import Gid, IbPort, ports_in
from nodectl.facts.versions import Versions
from nodectl.model.facts import Unread
from nodectl.model.finding import Finding
from nodectl.model.host import Host
from nodectl.model.status import Status
from nodectl.model.topology import NcclEnvironment
from nodectl.profiles.nccl import FINDS_GID_INDEX, finds_gid_index
from nodectl.topology.interfaces import TRAINING, SocketInterface, by_itself, choose, uses
from nodectl.topology.node import surroundings

HCA, GID, SOCKET = "NCCL_IB_HCA", "NCCL_IB_GID_INDEX", "NCCL_SOCKET_IFNAME"


def propose(hosts: Sequence[tuple[Host, Mapping[str, object]]]) -> dict[str, NcclEnvironment]:
    """Return the environments of all hosts that answered; together, because the socket interface must reach all."""
    ports = {host.name: training_ports(host, facts) for host, facts in hosts}
    interfaces = choose([(host, nics_in(facts)) for host, facts in hosts], rdma=all(ports.values()))
    environments = {}
    for host, facts in hosts:
        proposal = _Proposal(host.name)
        _adapters(proposal, host, facts, ports[host.name])
        _gid(proposal, facts, ports[host.name])
        _socket(proposal, facts, interfaces[host.name])
        environments[host.name] = NcclEnvironment(
            proposal.values, proposal.why, proposal.unset, tuple(proposal.findings)
        )
    return environments


def training_ports(host: Host, facts: Mapping[str, object]) -> tuple[IbPort, ...]:
    """Return the host's RDMA ports that carry training."""
    ports = ports_in(facts)
    port_uses = uses(ports, surroundings(host, facts))
    return tuple(port for port in ports if port_uses[port.label] == TRAINING)


class _Proposal:
    def __init__(self, host: str) -> None:
        self.host = host
        self.values: dict[str, str] = {}
        self.why: dict[str, str] = {}
        self.unset: dict[str, str] = {}
        self.findings: list[Finding] = []

    def set(self, name: str, value: str, why: str) -> None:
        self.values[name], self.why[name] = value, why

    def leave(self, name: str, why: str, status: Status | None = None, remedy: str = "") -> None:
        """Leave a variable unset, with the reason; `status` makes it a finding too."""
        self.unset[name] = why
        if status is not None:
            self.findings.append(
                Finding(self.host, "nccl_environment", status, name, actual=why, remedy=remedy, kind="host")
            )


def _adapters(proposal: _Proposal, host: Host, facts: Mapping[str, object], ports: Sequence[IbPort]) -> None:
    ports_fact = facts.get("ib_ports")
    if isinstance(ports_fact, Unread) or ports_fact is None:
        kind, reason = (ports_fact.kind, ports_fact.reason) if ports_fact else ("unknown", "ib_ports was not read")
        if kind == "absent":
            proposal.leave(HCA, f"no RDMA: {reason}")
        else:
            proposal.leave(HCA, f"RDMA ports could not be read: {reason}", Status.UNKNOWN)
        return
    labels: dict[str, list[str]] = defaultdict(list)
    for label, use in uses(ports_in(facts), surroundings(host, facts)).items():
        if use != TRAINING:
            labels[use].append(label)
    others = [f"{', '.join(listed)} ({use})" for use, listed in labels.items()]
    if not ports:
        excluded = "; ".join(others) or "there is none"
        proposal.leave(
            HCA, f"no RDMA port is fit for training: {excluded}", Status.WARNING, "look at the ports (ibstat)"
        )
        return
    if efa := [port.device for port in ports if port.is_efa]:
        others.append(f"{', '.join(efa)} (EFA)")
        ports = [port for port in ports if not port.is_efa]
    if not ports:
        proposal.leave(HCA, f"EFA: NCCL reaches {few(efa)} through its libfabric plugin, which does not read it")
        return
    value = "=" + ",".join(f"{port.device}:{port.port}" for port in ports)
    why = f"the {len(ports)} RDMA ports that carry training, by exact name"
    proposal.set(HCA, value, why + (f"; not {'; '.join(others)}" if others else "; there are no others"))


def _gid(proposal: _Proposal, facts: Mapping[str, object], ports: Sequence[IbPort]) -> None:
    roce = [port for port in ports if (port.link_layer or "").lower() == "ethernet"]
    if not roce:
        proposal.leave(GID, "no RoCE: InfiniBand needs none" if ports else "no RDMA")
        return
    versions, gids = facts.get("versions"), facts.get("gids")
    text = (versions.nccl_loaded or versions.nccl or "") if isinstance(versions, Versions) else ""
    version = re.match(r"\d{1,4}\.\d{1,4}(?:\.\d{1,4})?", text)
    if version is None:
        proposal.leave(
            GID,
            f"NCCL's version is not known; {FINDS_GID_INDEX} and later find the GID themselves",
            Status.UNKNOWN,
        )
        return
    if finds_gid_index(version[0]):
        proposal.leave(GID, f"NCCL {version[0]} finds the GID itself, and it should not be set")
        return
    fit = (
        [gid for gid in gids if isinstance(gid, Gid) and gid.version == "v2" and gid.ipv4]
        if isinstance(gids, tuple)
        else []
    )
    by_port = {
        port.label: [gid.index for gid in fit if (gid.device, gid.port) == (port.device, port.port)] for port in roce
    }
    common = set.intersection(*map(set, by_port.values()))
    if not common:
        places = ", ".join(f"{label}: {min(indexes, default='none')}" for label, indexes in by_port.items())
        why = f"no index has RoCE v2 with an IPv4 address on all ports ({places}), and one variable rules all"
        remedy = "NCCL 2.21 or later finds each by itself; with an older one give all ports IPv4 addresses alike"
        proposal.leave(GID, why, Status.WARNING, remedy)
        return
    where = f"RoCE v2 with an IPv4 address stands there on {few(list(by_port))}"
    proposal.set(GID, str(min(common)), f"{where}; NCCL {version[0]} does not find it itself")


def _socket(proposal: _Proposal, facts: Mapping[str, object], chosen: SocketInterface) -> None:
    nics_fact = facts.get("nics")
    if not isinstance(nics_fact, dict):
        reason = nics_fact.reason if isinstance(nics_fact, Unread) else "nics was not read"
        proposal.leave(SOCKET, f"interfaces could not be read: {reason}", Status.UNKNOWN)
    elif chosen.alone:
        proposal.leave(SOCKET, chosen.why)
    elif not chosen.interface:
        remedy = "name it yourself in nodectl_nccl_env, after looking at `ip route get` to another host"
        proposal.leave(SOCKET, chosen.why, Status.UNKNOWN, remedy)
    elif by_itself(nics_in(facts)) == [chosen.interface]:
        proposal.leave(SOCKET, f"{chosen.interface} is the only interface that NCCL would take")
    else:
        proposal.set(SOCKET, f"={chosen.interface}", chosen.why)
