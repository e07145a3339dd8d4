"""The fabric's graph: from ibnetdiscover's and lldpctl's outputs, in a file or recorded, or from host variables."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from nodectl.common.counting import counted
from nodectl.common.natural import natural
from nodectl.errors import InventoryError, NodectlError, ParseError, UsageError
from nodectl.facts.parsers.linux.lldp import Lldp, parse_lldp
from nodectl.facts.parsers.rdma.fabric import IbNetDiscover, parse_ibnetdiscover
from nodectl.model.host import Host
from nodectl.model.recording import Command
from nodectl.model.topology import Attachment, FabricGraph, Switch, Trunk


class HostNames:
    """Finds the inventory's host for a name that a fabric uses; every name is a host if there is no inventory."""

    def __init__(self, hosts: Sequence[Host]) -> None:
        self.everybody = not hosts
        self._exact = {name.lower(): host.name for host in reversed(hosts) for name in (host.address, host.name)}
        shorts = [_short(host.name) for host in hosts]
        self._short = {_short(host.name): host.name for host in hosts if shorts.count(_short(host.name)) == 1}

    def find(self, name: str) -> str | None:
        """Return the inventory's name of it; None if it is none of the hosts."""
        if self.everybody:
            return name
        return self._exact.get(name.lower()) or self._short.get(_short(name))


def _short(name: str) -> str:
    # an address has no short form
    return name.lower() if name.replace(".", "").isdigit() else name.lower().split(".")[0]


# what a switch uses to reduce inside the network: an adapter in the list, and no host
_AGGREGATION = "Aggregation Node"
# an adapter whose host never wrote its name: `MT4129 ConnectX7   Mellanox Technologies`
_FACTORY = re.compile(r"MT\d{3,}\b|localhost\b|\(none\)|.*Mellanox Technologies$")


def ib_graph(
    listing: IbNetDiscover, hosts: Sequence[Host], guids: Mapping[str, tuple[str, str]], source: str
) -> FabricGraph:
    """`node01 HCA-1` and `node01 mlx5_0` are adapters of node01; only an inventory's hosts, if there is one."""
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
        owner = guids.get(bare(adapter.guid))
        if owner is None and (not description or _FACTORY.match(description)):
            nameless.append(adapter.guid)
            continue
        first, *others = description.split() or [""]
        host, device = owner or (first, " ".join(others))
        name = names.find(host)
        if name is not None:
            owners[adapter.guid] = (name, device or adapter.guid)
    # one host has no two adapters of one name: whose they are cannot be told
    claims = Counter(owners.values())
    shared = [guid for guid, claim in owners.items() if claims[claim] > 1]
    owners = {guid: claim for guid, claim in owners.items() if claims[claim] == 1}
    return _of_links(listing, switches, owners, [*nameless, *shared], hosts, source)


def _of_links(
    listing: IbNetDiscover,
    switches: Mapping[str, Switch],
    owners: Mapping[str, tuple[str, str]],
    nameless: Sequence[str],
    hosts: Sequence[Host],
    source: str,
) -> FabricGraph:
    attachments, trunks, direct = [], [], []
    ends = {end for link in listing.links for end in ((link.a, link.a_port), (link.b, link.b_port))}
    live_ports = Counter(guid for guid, _ in ends)
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
                nic = f"{device}:{port}" if live_ports[adapter] > 1 else device
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


def bare(guid: str) -> str:
    """Return a GUID without prefix, colons and leading noughts, as every tool prints it differently."""
    text = guid.lower().replace(":", "")
    return re.sub(r"^(?:[hs]-)?(?:0x)?0*", "", text)


def lldp_graph(neighbors_of: Mapping[str, Lldp], hosts: Sequence[Host], source: str) -> FabricGraph:
    """Return the graph of what each host or switch, by its name, sees beside itself.

    Other names than the inventory's are switches; without an inventory, names whose neighbours say that they forward.
    """
    names = HostNames(hosts)
    forwarding = {
        neighbor.chassis for lldp in neighbors_of.values() for neighbor in lldp.neighbors if neighbor.forwards
    }
    asked = {
        owner: name
        for owner in neighbors_of
        if (name := names.find(owner)) is not None and (hosts or owner not in forwarding)
    }
    switches = [owner for owner in neighbors_of if owner not in asked]
    attachments = {
        **_seen_by_switches(neighbors_of, switches, asked, names),
        **_seen_by_hosts(neighbors_of, asked, hosts),
    }
    attached = {host for host, _, _ in attachments}
    trunks = []
    for owner in switches:
        for neighbor in neighbors_of[owner].neighbors:
            beyond = neighbor.forwards and neighbor.chassis not in attached
            # each cable once, although both ends tell of it
            if owner < neighbor.chassis if neighbor.chassis in switches else beyond:
                trunks.append(Trunk(owner, neighbor.chassis, neighbor.gbit_s))
    leaves = dict.fromkeys(attachment.switch for attachment in attachments.values())
    ids = dict.fromkeys([*switches, *leaves, *(trunk.b for trunk in trunks)])
    seen = dict.fromkeys(attachment.host for attachment in attachments.values())
    wanted = dict.fromkeys([*(host.name for host in hosts), *asked.values()])
    return FabricGraph(
        source=source,
        switches=tuple(Switch(name, name) for name in ids),
        attachments=tuple(attachments.values()),
        trunks=tuple(trunks),
        hosts=tuple(seen),
        missing=tuple(name for name in wanted if name not in seen),
        # every leaf told its own cables, or there is only one
        trunks_known=set(leaves) <= set(switches) or len(leaves) < 2,
    )


_Attachments = dict[tuple[str, str, str], Attachment]


def _seen_by_hosts(neighbors_of: Mapping[str, Lldp], asked: Mapping[str, str], hosts: Sequence[Host]) -> _Attachments:
    attachments: _Attachments = {}
    listed = {host.name: host.variables.get("nodectl_nics") for host in hosts}
    for owner, name in asked.items():
        chosen = listed.get(name)
        wanted = [*map(str, chosen)] if isinstance(chosen, list) else []
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
    attachments: _Attachments = {}
    for owner in switches:
        for neighbor in neighbors_of[owner].neighbors:
            host = None if neighbor.chassis in switches or neighbor.chassis in asked else names.find(neighbor.chassis)
            if host is not None and host not in asked.values() and not (neighbor.forwards and names.everybody):
                nic = neighbor.port_description or neighbor.port or neighbor.interface
                port = (host, nic, owner)
                attachments[port] = Attachment(*port, neighbor.gbit_s)
    return attachments


_MAX_BYTES = 256 << 20
_RECORDED = "lldpctl.out"
_REMEDY = "give ibnetdiscover's text, lldpctl -f json of one host, or a folder with <host>.json of several"
# what a host is asked about the fabric
LLDP = Command("lldpctl", ("lldpctl", "-f", "json"), hardware=True)


def graph_from(path: Path, hosts: Sequence[Host], guids: Mapping[str, tuple[str, str]]) -> FabricGraph:
    """Return the graph of a file, or of a folder with lldpctl's JSON; `guids` name adapters that have no name."""
    graph = _graph(path, hosts, guids)
    if graph.hosts or not hosts:
        return graph
    # of a fabric with other names the whole is shown, and that nobody of the inventory was found in it
    return replace(_graph(path, (), guids), missing=tuple(host.name for host in hosts))


def _graph(path: Path, hosts: Sequence[Host], guids: Mapping[str, tuple[str, str]]) -> FabricGraph:
    try:
        if path.is_dir():
            files = {file.stem: file for file in sorted(path.glob("*.json"))}
            files |= {file.parent.name: file for file in sorted(path.glob(f"*/{_RECORDED}"))}
            if not files:
                raise UsageError(f"{path}: neither <host>.json nor <host>/{_RECORDED} in it", _REMEDY)
            seen = {name: _parsed(file.name, _file_text(file)) for name, file in files.items()}
            return lldp_graph(seen, hosts, str(path))
        text = _file_text(path)
        if text.lstrip().startswith("{"):
            return lldp_graph({path.stem: parse_lldp(text)}, hosts, str(path))
        return ib_graph(parse_ibnetdiscover(text), hosts, guids, str(path))
    except ParseError as error:
        raise ParseError(f"{path}: {error.message}", error.remedy or _REMEDY) from error


def _file_text(path: Path) -> str:
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise NodectlError(f"{path}: larger than {_MAX_BYTES >> 20} MiB", _REMEDY)
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}", _REMEDY) from error


def _parsed(name: str, text: str) -> Lldp:
    try:
        return parse_lldp(text)
    except ParseError as error:
        raise ParseError(f"{name}: {error.message}", error.remedy) from error


def recorded_graph(outputs: Mapping[str, str], hosts: Sequence[Host]) -> FabricGraph | None:
    """Return the graph from lldpctl's outputs by host; None if no host knows a neighbour."""
    neighbors = {host: _parsed(host, text) for host, text in outputs.items()}
    if any(lldp.neighbors for lldp in neighbors.values()):
        return lldp_graph(neighbors, hosts, "lldpctl on the hosts")
    return None


_FORM = "a switch's name, a list of names, or a mapping from NIC to name"


def variables_graph(hosts: Sequence[Host]) -> FabricGraph | None:
    """Return the graph that nodectl_switch and nodectl_rail describe; None if no host has them."""
    attachments = [attachment for host in hosts for attachment in _attachments(host)]
    if not attachments:
        return None
    switches = dict.fromkeys(attachment.switch for attachment in attachments)
    seen = dict.fromkeys(attachment.host for attachment in attachments)
    return FabricGraph(
        source="nodectl_switch",
        switches=tuple(Switch(name, name) for name in switches),
        attachments=tuple(attachments),
        hosts=tuple(seen),
        missing=tuple(host.name for host in hosts if host.name not in seen),
        trunks_known=len(switches) < 2,
    )


def _attachments(host: Host) -> list[Attachment]:
    ports = _named(host, "nodectl_switch")
    rails = host.variables.get("nodectl_rail")
    by_nic = _named(host, "nodectl_rail") if isinstance(rails, dict) else {}
    listed = rails if isinstance(rails, list) else [rails] * len(ports)
    if len(listed) != len(ports):
        raise InventoryError(
            f"host {host.name}: nodectl_rail names {counted(len(listed), 'rail')} for {counted(len(ports), 'switch')}",
            "name one rail for each entry of nodectl_switch, or a mapping from NIC to rail",
        )
    return [
        Attachment(host.name, nic, switch, rail=by_nic.get(nic, "") if by_nic else "" if rail is None else str(rail))
        for (nic, switch), rail in zip(ports.items(), listed, strict=True)
    ]


def _named(host: Host, variable: str) -> dict[str, str]:
    """NIC → name; a NIC that the inventory does not name is called by its place."""
    value = host.variables.get(variable)
    if value is None or value == "":
        return {}
    if isinstance(value, Mapping):
        entries = {str(nic): name for nic, name in value.items()}
    else:
        entries = {f"nic{number}": name for number, name in enumerate(value if isinstance(value, list) else [value])}
    for name in entries.values():
        if isinstance(name, bool) or not isinstance(name, str | int) or name == "":
            raise InventoryError(f"host {host.name}: {variable}: {value!r} is not {_FORM}", "correct the variable")
    return {nic: str(name) for nic, name in entries.items()}
