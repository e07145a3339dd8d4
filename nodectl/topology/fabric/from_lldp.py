"""The fabric's graph from lldpctl's JSON of hosts, and of switches where those run lldpd too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from nodectl.model.host import Host
from nodectl.model.topology import Attachment, FabricGraph, Switch, Trunk
from nodectl.parsers.linux.lldp import Lldp
from nodectl.topology.fabric.host_names import HostNames


def lldp_graph(neighbors_of: Mapping[str, Lldp], hosts: Sequence[Host], source: str) -> FabricGraph:
    """The graph of what each host or switch, by its name, sees beside itself.

    Who is no host of the inventory is a switch; without an inventory, whom others see forward.  Cables between switches
    are known only where switches were asked.
    """
    names = HostNames(hosts)
    forwarding = {
        neighbor.chassis for lldp in neighbors_of.values() for neighbor in lldp.neighbors if neighbor.forwards
    }
    asked: dict[str, str] = {}
    for owner in neighbors_of:
        name = names.find(owner)
        if name is not None and (hosts or owner not in forwarding):
            asked[owner] = name
    switches = [owner for owner in neighbors_of if owner not in asked]
    attachments = {
        **_seen_by_switches(neighbors_of, switches, asked, names),
        **_seen_by_hosts(neighbors_of, asked, hosts),
    }
    trunks = _trunks(neighbors_of, switches, attachments)
    leaves = dict.fromkeys(attachment.switch for attachment in attachments.values())
    ids = dict.fromkeys([*switches, *leaves, *(trunk.b for trunk in trunks)])
    seen = dict.fromkeys(attachment.host for attachment in attachments.values())
    wanted = dict.fromkeys([*(host.name for host in hosts), *asked.values()])
    return FabricGraph(
        source=source,
        switches=tuple(Switch(name, name) for name in ids),
        attachments=tuple(attachments.values()),
        trunks=trunks,
        hosts=tuple(seen),
        missing=tuple(name for name in wanted if name not in seen),
        # every leaf told its own cables, or there is only one
        trunks_known=set(leaves) <= set(switches) or len(leaves) < 2,
    )


_Attachments = dict[tuple[str, str, str], Attachment]


def _seen_by_hosts(neighbors_of: Mapping[str, Lldp], asked: Mapping[str, str], hosts: Sequence[Host]) -> _Attachments:
    attachments: _Attachments = {}
    for owner, name in asked.items():
        wanted = _training(hosts, name)
        for neighbor in neighbors_of[owner].neighbors:
            if (
                neighbor.forwards is not False
                and neighbor.chassis not in asked
                and (not wanted or neighbor.interface in wanted)
            ):
                port = (name, neighbor.interface, neighbor.chassis)
                attachments[port] = Attachment(*port, neighbor.gbit_s)
    return attachments


def _seen_by_switches(
    neighbors_of: Mapping[str, Lldp], switches: Sequence[str], asked: Mapping[str, str], names: HostNames
) -> _Attachments:
    """Hosts that were not asked themselves."""
    attachments: _Attachments = {}
    for owner in switches:
        for neighbor in neighbors_of[owner].neighbors:
            host = None if neighbor.chassis in switches or neighbor.chassis in asked else names.find(neighbor.chassis)
            if host is not None and host not in asked.values() and not (neighbor.forwards and names.everybody):
                nic = neighbor.port_description or neighbor.port or neighbor.interface
                port = (host, nic, owner)
                attachments[port] = Attachment(*port, neighbor.gbit_s)
    return attachments


def _trunks(neighbors_of: Mapping[str, Lldp], switches: Sequence[str], attachments: _Attachments) -> tuple[Trunk, ...]:
    """Cables between switches, each once although both ends tell of it."""
    hosts = {host for host, _, _ in attachments}
    trunks = []
    for owner in switches:
        for neighbor in neighbors_of[owner].neighbors:
            both_told = neighbor.chassis in switches
            beyond = not both_told and neighbor.forwards and neighbor.chassis not in hosts
            if (both_told and owner < neighbor.chassis) or beyond:
                trunks.append(Trunk(owner, neighbor.chassis, neighbor.gbit_s))
    return tuple(trunks)


def _training(hosts: Sequence[Host], name: str) -> tuple[str, ...]:
    """The training NICs that the inventory names; empty where it names none."""
    for host in hosts:
        named = host.variables.get("nodectl_nics") if host.name == name else None
        if isinstance(named, list):
            return tuple(map(str, named))
    return ()
