"""Reads `iblinkinfo`, `ibnetdiscover` and `perfquery`: the ports, switches and counters of an InfiniBand fabric."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from nodectl.facts.parsers.rdma.labelled import nothing_found, rows_of
from nodectl.facts.parsers.text import Line, unreadable

IBLINKINFO_TOOL = "iblinkinfo"
_NODE = re.compile(r"(?P<kind>CA|Switch|Router): (?:(?P<guid>0x[0-9a-fA-F]{1,16}) )?(?P<name>.{0,200}?):\s*")
_PORT = re.compile(
    r"\s+(?:(?P<guid>0x[0-9a-fA-F]{1,16})\s+)?(?P<lid>\d{1,6})\s+(?P<port>\d{1,4})\[[^\]]{0,8}\]\s*==\(\s*"
    r"(?:(?P<width>\d{1,2}X)\s+(?P<rate>\d{1,4}(?:\.\d{1,6})?) Gbps\s+)?(?P<state>\w{2,12})/\s*(?P<physical>\w{2,20})\)"
    r"==>\s*(?:(?P<peer_lid>\d{1,6})\s+(?P<peer_port>\d{1,4}))?\[[^\]]{0,8}\]\s*\"(?P<peer>.{0,200}?)\"\s*\((?P<remark>[^)]{0,200})\)\s*"
)
_BEGINS_AS_PORT = re.compile(r"\s+(?:0x[0-9a-fA-F]{1,16}\s+)?\d{1,6}\s+\d{1,4}\[")
_FAILURE = re.compile(r"iberror:|ibpanic:|can't open |[Dd]iscover failed|[Cc]ommand not found|mad_rpc|ibwarn:")


@dataclass(frozen=True, slots=True)
class LinkPort:
    """One port; `lane_gbit_s` is of one lane, `remark` what the tool says could be better, empty where nothing."""

    node: str
    kind: str
    guid: str | None
    lid: int
    port: int
    width: str | None
    lane_gbit_s: float | None
    state: str
    physical_state: str
    peer: str | None
    peer_lid: int | None
    peer_port: int | None
    remark: str


@dataclass(frozen=True, slots=True)
class Iblinkinfo:
    """The ports in the order printed: each cable stands there from both ends."""

    ports: tuple[LinkPort, ...]


def parse_iblinkinfo(text: str) -> Iblinkinfo:
    """Read the output; raise ParseError for a row that is cut, a port before its node, and text without a port."""
    lines = list(rows_of(text, IBLINKINFO_TOOL))
    ports: list[LinkPort] = []
    node: re.Match[str] | None = None
    for line in lines:
        if match := _NODE.fullmatch(line.text.strip()):
            node = match
        elif match := _PORT.fullmatch(line.text):
            if node is None:
                raise unreadable(IBLINKINFO_TOOL, line, "the node that this port belongs to is missing")
            ports.append(_port(node, match))
        elif _BEGINS_AS_PORT.match(line.text):
            raise unreadable(IBLINKINFO_TOOL, line, "the row is cut or garbled")
    if not ports:
        raise nothing_found(IBLINKINFO_TOOL, "port", lines, _FAILURE)
    return Iblinkinfo(tuple(ports))


def _port(node: re.Match[str], match: re.Match[str]) -> LinkPort:
    return LinkPort(
        node=node["name"].strip(),
        kind=node["kind"],
        guid=match["guid"] or node["guid"],
        lid=int(match["lid"]),
        port=int(match["port"]),
        width=match["width"],
        lane_gbit_s=float(match["rate"]) if match["rate"] else None,
        state=match["state"],
        physical_state=match["physical"],
        peer=match["peer"].strip() or None,
        peer_lid=int(match["peer_lid"]) if match["peer_lid"] else None,
        peer_port=int(match["peer_port"]) if match["peer_port"] else None,
        remark=match["remark"].strip(),
    )


# Reads `ibnetdiscover`, both its topology file and its list of ports (-p): who is cabled to whom, and how fast.

IBNETDISCOVER_TOOL = "ibnetdiscover"
_IBNETDISCOVER_NODE = re.compile(r'\s*(Switch|Ca|Rt)\s+(\d{1,4})\s+"([SHR])-([0-9a-fA-F]{1,16})"\s*(?:#\s*"(.*)".*)?')
_NODE_START = re.compile(r"\s*(?:Switch|Ca|Rt)\s+\d")
_IBNETDISCOVER_PORT = re.compile(
    r"\s*\[(?P<port>\d{1,4})\](?:\[ext \d+\])?(?:\([0-9a-fA-F]{1,16}\))?"
    r'\s+"(?P<kind>[SHR])-(?P<guid>[0-9a-fA-F]{1,16})"\[(?P<peer_port>\d{1,4})\](?:\[ext \d+\])?'
    r'(?:\s*\([0-9a-fA-F]{1,16}\))?\s*(?:#\s*(?:lid \d+ lmc \d+\s+)?"(?P<name>.*)"\s+lid \d+'
    r"\s+(?P<width>\d{1,2}x|\?\?)(?P<speed>\w+|\?\?\?)(?:\s.*)?)?"
)
_PORT_START = re.compile(r"\s*\[\d{1,4}\](?:$|[\s(\[])")
_LISTED = re.compile(
    r"\s*(?P<type>SW|CA|RT)\s+\d+\s+(?P<port>\d{1,4})\s+0x(?P<guid>[0-9a-fA-F]{1,16})"
    r"\s+(?P<width>\d{1,2}x|\?\?)\s+(?P<speed>\w+|\?\?\?)(?P<rest>\s.*)?"
)
_LISTED_START = re.compile(r"\s*(?:SW|CA|RT)\s+\d+\s+\d")
_PEER = re.compile(
    r"\s+-\s+(?P<type>SW|CA|RT)\s+\d+\s+(?P<port>\d{1,4})\s+0x(?P<guid>[0-9a-fA-F]{1,16})"
    r"\s+\(\s*'(?P<names>.*)'\s*\)"
)
_KINDS = {"Switch": "S", "Ca": "H", "Rt": "R", "SW": "S", "CA": "H", "RT": "R"}
# as sold: Gbit/s a lane
_LANE_GBIT_S = {
    "SDR": 2.5,
    "DDR": 5.0,
    "QDR": 10.0,
    "FDR10": 10.0,
    "FDR": 14.0,
    "EDR": 25.0,
    "HDR": 50.0,
    "NDR": 100.0,
    "XDR": 200.0,
}


@dataclass(frozen=True, slots=True)
class FabricNode:
    """A switch, a router or a host's adapter; `name` is None where only a row without a name mentions it."""

    guid: str
    name: str | None
    ports_used: int


@dataclass(frozen=True, slots=True)
class FabricLink:
    """One cable, as the end that was printed first sees it; None for a width or speed that the tool does not know."""

    a: str
    a_port: int
    b: str
    b_port: int
    width: str | None
    speed: str | None
    gbit_s: float | None


@dataclass(frozen=True, slots=True)
class IbNetDiscover:
    """The fabric; a host has one entry for each adapter that has its own GUID."""

    switches: tuple[FabricNode, ...]
    hosts: tuple[FabricNode, ...]
    links: tuple[FabricLink, ...]
    routers: tuple[FabricNode, ...] = ()


def parse_ibnetdiscover(text: str) -> IbNetDiscover:
    """Read the output; raise ParseError for a cut row, a port before its node, and no node (with the tool's reason)."""
    lines = list(rows_of(text, IBNETDISCOVER_TOOL))
    fabric = _Fabric()
    for line in lines:
        fabric.read(line)
    if not fabric.nodes:
        raise nothing_found(IBNETDISCOVER_TOOL, "node", lines, _FAILURE)
    return fabric.result()


@dataclass(slots=True)
class _Node:
    kind: str
    guid: str
    name: str | None = None
    # where its own block is, else where a row first mentions it
    line: int = 0
    has_block: bool = False
    ports: set[int] = field(default_factory=set)


@dataclass(slots=True)
class _Fabric:
    nodes: dict[str, _Node] = field(default_factory=dict)
    links: dict[tuple[tuple[str, int], tuple[str, int]], FabricLink] = field(default_factory=dict)
    current: str | None = None

    def read(self, line: Line) -> None:
        if match := _IBNETDISCOVER_PORT.fullmatch(line.text):
            self._port(match, line)
        elif match := _IBNETDISCOVER_NODE.fullmatch(line.text):
            if _KINDS[match[1]] != match[3]:
                raise unreadable(IBNETDISCOVER_TOOL, line, f"a {match[1]} is no {match[3]!r}")
            self.current = self._node(match[3], match[4], match[5], line, has_block=True)
        elif match := _LISTED.fullmatch(line.text):
            self._listed(match, line)
        elif _NODE_START.match(line.text) or _PORT_START.match(line.text) or _LISTED_START.match(line.text):
            raise unreadable(IBNETDISCOVER_TOOL, line, "the row is cut or garbled")

    def result(self) -> IbNetDiscover:
        ordered = sorted(self.nodes.items(), key=lambda entry: entry[1].line)

        def of(kind: str) -> tuple[FabricNode, ...]:
            return tuple(FabricNode(node.guid, node.name, len(node.ports)) for _, node in ordered if node.kind == kind)

        return IbNetDiscover(of("S"), of("H"), tuple(self.links.values()), of("R"))

    def _port(self, match: re.Match[str], line: Line) -> None:
        if self.current is None:
            raise unreadable(IBNETDISCOVER_TOOL, line, "the node that this port belongs to is missing")
        peer = self._node(match["kind"], match["guid"], match["name"], line)
        ends = (self.current, int(match["port"])), (peer, int(match["peer_port"]))
        self._link(*ends, match["width"], match["speed"], line)

    def _listed(self, match: re.Match[str], line: Line) -> None:
        rest = match["rest"] or ""
        peer = _PEER.fullmatch(rest.rstrip())
        if peer is None:
            if re.match(r"\s+-(?:\s|$)", rest):
                raise unreadable(IBNETDISCOVER_TOOL, line, "the row is cut or garbled")
            self._node(_KINDS[match["type"]], match["guid"], rest.strip().strip("'"), line, has_block=True)
            return
        name, _, peer_name = peer["names"].partition("' - '")
        here = self._node(_KINDS[match["type"]], match["guid"], name, line, has_block=True)
        there = self._node(_KINDS[peer["type"]], peer["guid"], peer_name, line)
        ends = (here, int(match["port"])), (there, int(peer["port"]))
        self._link(*ends, match["width"], match["speed"], line)

    def _node(self, kind: str, guid: str, name: str | None, line: Line, has_block: bool = False) -> str:
        key = guid.lower()
        node = self.nodes.get(key)
        if node is None:
            node = self.nodes[key] = _Node(kind, guid, line=line.number)
        elif node.kind != kind:
            raise unreadable(IBNETDISCOVER_TOOL, line, f"{guid} is both {node.kind!r} and {kind!r}")
        if has_block and not node.has_block:
            node.line, node.has_block = line.number, True
        node.name = node.name or ((name or "").strip() or None)
        return node.guid

    def _link(self, a: tuple[str, int], b: tuple[str, int], width: str | None, speed: str | None, line: Line) -> None:
        if (
            speed is not None
            and speed not in _LANE_GBIT_S
            and any(lane_speed.startswith(speed) for lane_speed in _LANE_GBIT_S)
        ):
            raise unreadable(IBNETDISCOVER_TOOL, line, f"the speed {speed!r} is cut")
        for guid, port in (a, b):
            self.nodes[guid.lower()].ports.add(port)
        lanes = int(width[:-1]) if width and width != "??" else None
        lane_gbit_s = _LANE_GBIT_S.get(speed or "")
        link = FabricLink(
            *(*a, *b),
            None if width == "??" else width,
            None if speed == "???" else speed,
            lanes * lane_gbit_s if lanes and lane_gbit_s else None,
        )
        self.links.setdefault((min(a, b), max(a, b)), link)


# Reads `perfquery`, with and without -x: the counters of one port or of several.

PERFQUERY_TOOL = "perfquery"
_BLOCK = re.compile(r"\s*# (\w[\w ]*) counters: (.*?) ?port (\d{1,3})\b.*")
_BLOCK_START = re.compile(r"\s*# \w[\w ]* counters\b")
_LID = re.compile(r"\bLid (\d{1,6})\b")
_COUNTER = re.compile(r"\s*([A-Za-z]\w*):\.*\s*(\d{1,20}|0[xX][0-9a-fA-F]{1,16})\s*")
_COUNTER_START = re.compile(
    r"\s*[A-Za-z]\w*:?\.{2,}.*|\s*(?:Port|Counter|Symbol|Link|Excessive|Local|VL15|QP1)\w*:?\s*"
)
_PERFQUERY_FAILURE = re.compile(r"iberror:|ibpanic:|ibwarn:|[Cc]ommand not found")


@dataclass(frozen=True, slots=True)
class PortCounters:
    """One block; `lid` is None where the port was asked for by its route."""

    lid: int | None
    port: int
    kind: str
    counters: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Perfquery:
    """The blocks in the order printed."""

    ports: tuple[PortCounters, ...]


def parse_perfquery(text: str) -> Perfquery:
    """Read the output; raise ParseError without a block, with the tool's reason, and for a row that is cut."""
    lines = list(rows_of(text, PERFQUERY_TOOL))
    blocks: list[tuple[re.Match[str], dict[str, int]]] = []
    for line in lines:
        if match := _BLOCK.fullmatch(line.text):
            blocks.append((match, {}))
        elif _BLOCK_START.match(line.text):
            raise unreadable(PERFQUERY_TOOL, line, "the block's port is missing")
        elif blocks:
            _count(blocks[-1][1], line)
    if not blocks:
        raise nothing_found(PERFQUERY_TOOL, "counters", lines, _PERFQUERY_FAILURE)
    return Perfquery(tuple(_perfquery_port(match, counters) for match, counters in blocks))


def _count(counters: dict[str, int], line: Line) -> None:
    match = _COUNTER.fullmatch(line.text)
    if match:
        counters[match[1]] = int(match[2], 16 if match[2][:2] in ("0x", "0X") else 10)
    elif _COUNTER_START.fullmatch(line.text):
        raise unreadable(PERFQUERY_TOOL, line, "the row has no count")


def _perfquery_port(match: re.Match[str], counters: Mapping[str, int]) -> PortCounters:
    lid = _LID.search(match[2])
    return PortCounters(int(lid[1]) if lid else None, int(match[3]), match[1], counters)
