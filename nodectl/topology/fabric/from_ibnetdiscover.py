"""The fabric's graph from ibnetdiscover: switches, adapters of hosts, and the cables between them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence

from nodectl.common.natural import natural
from nodectl.model.host import Host
from nodectl.model.topology import Attachment, FabricGraph, Switch, Trunk
from nodectl.parsers.rdma.ibnetdiscover import IbNetDiscover
from nodectl.topology.fabric.host_names import HostNames

# what a switch uses to reduce inside the network: an adapter in the list, and no host
_AGGREGATION = "Aggregation Node"
# an adapter whose host never wrote its name: `MT4129 ConnectX7   Mellanox Technologies`
_FACTORY = re.compile(r"MT\d{3,}\b|localhost\b|\(none\)|.*Mellanox Technologies$")


def ib_graph(
    listing: IbNetDiscover, hosts: Sequence[Host], guids: Mapping[str, tuple[str, str]], source: str
) -> FabricGraph:
    """`node01 HCA-1` and `node01 mlx5_0` are adapters of node01; only an inventory's hosts, where there is one."""
    names = HostNames(hosts)
    switches = {
        switch.guid: Switch(switch.guid, (switch.name or "").strip() or switch.guid) for switch in listing.switches
    }
    owners: dict[str, tuple[str, str]] = {}
    nameless: list[str] = []
    for adapter in listing.hosts:
        description = (adapter.name or "").strip()
        if _AGGREGATION in description:
            continue
        known = guids.get(bare(adapter.guid))
        if known is None and (not description or _FACTORY.match(description)):
            nameless.append(adapter.guid)
            continue
        host, device = known or _split(description)
        name = names.find(host)
        if name is not None:
            owners[adapter.guid] = (name, device or adapter.guid)
    # one host has no two adapters of one name: whose they are cannot be told
    claims = Counter(owners.values())
    shared = [guid for guid, claim in owners.items() if claims[claim] > 1]
    owners = {guid: claim for guid, claim in owners.items() if claims[claim] == 1}
    return _graph(listing, switches, owners, [*nameless, *shared], hosts, source)


def _graph(
    listing: IbNetDiscover,
    switches: Mapping[str, Switch],
    owners: Mapping[str, tuple[str, str]],
    nameless: Sequence[str],
    hosts: Sequence[Host],
    source: str,
) -> FabricGraph:
    attachments, trunks, direct = [], [], []
    several = _live_ports(listing, owners)
    for link in listing.links:
        speed = " ".join(filter(None, (link.width, link.speed)))
        if link.a in switches and link.b in switches:
            if link.a != link.b:
                trunks.append(Trunk(link.a, link.b, link.gbit_s, speed))
            continue
        if link.a in owners and link.b in owners:
            pair = sorted((owners[link.a][0], owners[link.b][0]), key=natural)
            if pair[0] != pair[1]:
                direct.append((pair[0], pair[1]))
            continue
        for adapter, port, switch in ((link.a, link.a_port, link.b), (link.b, link.b_port, link.a)):
            if adapter in owners and switch in switches:
                host, device = owners[adapter]
                nic = f"{device}:{port}" if several[adapter] > 1 else device
                attachments.append(Attachment(host, nic, switch, link.gbit_s, speed))
    seen = dict.fromkeys(host for host, _ in owners.values())
    return FabricGraph(
        source=source,
        switches=tuple(switches.values()),
        attachments=tuple(attachments),
        trunks=tuple(trunks),
        direct=tuple(dict.fromkeys(direct)),
        hosts=tuple(seen),
        missing=tuple(host.name for host in hosts if host.name not in seen),
        nameless=tuple(nameless),
    )


def _live_ports(listing: IbNetDiscover, owners: Mapping[str, object]) -> Counter[str]:
    """How many ports of each adapter have a live link."""
    ends = {end for link in listing.links for end in ((link.a, link.a_port), (link.b, link.b_port))}
    return Counter(guid for guid, _ in ends if guid in owners)


def _split(description: str) -> tuple[str, str]:
    """(host, device) of a node description."""
    host, _, device = description.partition(" ")
    return host, " ".join(device.split())


def bare(guid: str) -> str:
    """A GUID without prefix, colons and leading noughts, as every tool prints it differently."""
    text = guid.lower().replace(":", "")
    return re.sub(r"^(?:[hs]-)?(?:0x)?0*", "", text)
