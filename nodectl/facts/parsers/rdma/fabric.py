"""Reads the topology file of `ibnetdiscover`: which ports are joined by cables, and their rates."""

from __future__ import annotations

import re
from dataclasses import dataclass

from nodectl.facts.parsers.rdma.labelled import rows_of
from nodectl.facts.parsers.text import Line, foreign, unreadable

TOOL = "ibnetdiscover"
_FAILURE = re.compile(r"iberror:|ibpanic:|can't open |[Dd]iscover failed|[Cc]ommand not found|mad_rpc|ibwarn:")
_NODE = re.compile(r'\s*(Switch|Ca|Rt)\s+(\d{1,4})\s+"([SHR])-([0-9a-fA-F]{1,16})"\s*(?:#\s*"(.*)".*)?')
_NODE_START = re.compile(r"\s*(?:Switch|Ca|Rt)\s+\d")
_PORT = re.compile(
    r"\s*\[(?P<port>\d{1,4})\](?:\[ext \d+\])?(?:\([0-9a-fA-F]{1,16}\))?"
    r'\s+"(?P<kind>[SHR])-(?P<guid>[0-9a-fA-F]{1,16})"\[(?P<peer_port>\d{1,4})\](?:\[ext \d+\])?'
    r'(?:\s*\([0-9a-fA-F]{1,16}\))?\s*(?:#\s*(?:lid \d+ lmc \d+\s+)?"(?P<name>.*)"\s+lid \d+'
    r"\s+(?P<width>\d{1,2}x|\?\?)(?P<speed>\w+|\?\?\?)(?:\s.*)?)?"
)
_PORT_START = re.compile(r"\s*\[\d{1,4}\](?:$|[\s(\[])")
_KINDS = {"Switch": "S", "Ca": "H", "Rt": "R"}
# as sold: Gbit/s a lane
_LANE_GBIT_S = {"SDR": 2.5, "DDR": 5.0, "QDR": 10.0, "FDR10": 10.0, "FDR": 14.0, "EDR": 25.0, "HDR": 50.0}
_LANE_GBIT_S |= {"NDR": 100.0, "XDR": 200.0}


@dataclass(frozen=True, slots=True)
class FabricNode:
    """A switch or a host's adapter; `name` is None if no row has a name for it."""

    guid: str
    name: str | None


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


def parse_ibnetdiscover(text: str) -> IbNetDiscover:
    """Read the output; raise ParseError for a cut row, a port before its node, and no node (with the tool's reason)."""
    lines = list(rows_of(text, TOOL))
    nodes: dict[str, _Node] = {}  # by GUID in small letters
    links: dict[tuple[tuple[str, int], tuple[str, int]], FabricLink] = {}
    current: str | None = None
    for line in lines:
        if match := _PORT.fullmatch(line.text):
            if current is None:
                raise unreadable(TOOL, line, "the node that this port belongs to is missing")
            peer = _node(nodes, match["kind"], match["guid"], match["name"], line)
            a, b = (current, int(match["port"])), (peer, int(match["peer_port"]))
            links.setdefault((min(a, b), max(a, b)), _link(a, b, match["width"], match["speed"], line))
        elif match := _NODE.fullmatch(line.text):
            if _KINDS[match[1]] != match[3]:
                raise unreadable(TOOL, line, f"a {match[1]} is no {match[3]!r}")
            current = _node(nodes, match[3], match[4], match[5], line, has_block=True)
        elif _NODE_START.match(line.text) or _PORT_START.match(line.text):
            raise unreadable(TOOL, line, "the row is cut or garbled")
    if not nodes:
        raise foreign(TOOL, lines, "no node", _FAILURE)
    ordered = sorted(nodes.values(), key=lambda node: node.line)
    switches, hosts = (
        tuple(FabricNode(node.guid, node.name) for node in ordered if node.kind == kind) for kind in "SH"
    )
    return IbNetDiscover(switches, hosts, tuple(links.values()))


@dataclass(slots=True)
class _Node:
    kind: str
    guid: str
    name: str | None = None
    # where its own block is, else if a row first mentions it
    line: int = 0
    has_block: bool = False


def _node(
    nodes: dict[str, _Node], kind: str, guid: str, name: str | None, line: Line, *, has_block: bool = False
) -> str:
    node = nodes.setdefault(guid.lower(), _Node(kind, guid, line=line.number))
    if node.kind != kind:
        raise unreadable(TOOL, line, f"{guid} is both {node.kind!r} and {kind!r}")
    if has_block and not node.has_block:
        node.line, node.has_block = line.number, True
    node.name = node.name or ((name or "").strip() or None)
    return node.guid


def _link(a: tuple[str, int], b: tuple[str, int], width: str | None, speed: str | None, line: Line) -> FabricLink:
    if speed and speed not in _LANE_GBIT_S and any(known.startswith(speed) for known in _LANE_GBIT_S):
        raise unreadable(TOOL, line, f"the speed {speed!r} is cut")
    lanes = int(width[:-1]) if width and width != "??" else None
    lane_gbit_s = _LANE_GBIT_S.get(speed or "")
    gbit_s = lanes * lane_gbit_s if lanes and lane_gbit_s else None
    return FabricLink(*a, *b, None if width == "??" else width, None if speed == "???" else speed, gbit_s)
