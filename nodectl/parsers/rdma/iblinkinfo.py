"""Reads `iblinkinfo`: each port of the fabric, how its link runs, and what is at the other end."""

from __future__ import annotations

import re
from dataclasses import dataclass

from nodectl.parsers.rdma.labelled import nothing_found, rows_of
from nodectl.parsers.text import unreadable

TOOL = "iblinkinfo"
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
    """ParseError for a row that is cut, a port before its node, and text without a port."""
    lines = list(rows_of(text, TOOL))
    ports: list[LinkPort] = []
    node: re.Match[str] | None = None
    for line in lines:
        if match := _NODE.fullmatch(line.text.strip()):
            node = match
        elif match := _PORT.fullmatch(line.text):
            if node is None:
                raise unreadable(TOOL, line, "the node that this port belongs to is missing")
            ports.append(_port(node, match))
        elif _BEGINS_AS_PORT.match(line.text):
            raise unreadable(TOOL, line, "the row is cut or garbled")
    if not ports:
        raise nothing_found(TOOL, "port", lines, _FAILURE)
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
