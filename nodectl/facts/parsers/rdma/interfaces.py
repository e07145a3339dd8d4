"""Reads `ibdev2netdev`, `rdma link` and `show_gids`: the network interfaces of RDMA ports, and their GIDs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from nodectl.errors import ParseError
from nodectl.facts.parsers.json_values import json_document, text_of, whole
from nodectl.facts.parsers.rdma.labelled import nothing_found, rows_of
from nodectl.facts.parsers.text import Line, unreadable

IBDEV2NETDEV_TOOL = "ibdev2netdev"
_STATES = {"Up": True, "Down": False, "NA": None, "": None}
_INTERFACE = r" ==> (?P<netdev>\S{1,64}) \((?P<link>Up|Down|NA|)\)\s*"
_ROW = re.compile(rf"\s*(?P<device>\S{{1,64}}) port (?P<port>\d{{1,3}}){_INTERFACE}")
# the description of the board may hold any word
_VERBOSE = re.compile(
    r"\s*(?P<pci>[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7])? (?P<device>\S{1,64})"
    r" \((?P<board>[^()]{1,200})\) (?P<about>.{0,300}?) ?fw (?P<firmware>\S{1,64})"
    rf" port (?P<port>\d{{1,3}}) \((?P<state>\w{{1,20}}) *\){_INTERFACE}"
)
# of drivers before 2013: no state of the interface
_OLD_ROW = re.compile(r"\s*(?P<device>\S{1,64}) port (?P<port>\d{1,3}) <===> (?P<netdev>\S{1,64})\s*")
_BEGINS_AS_ROW = re.compile(r"\s*\S{1,64} port \d{1,3}(?: [=<]|\s*$)|.{0,600} fw \S{1,64}(?: port|\s*$)|.{0,600}==>")
_FAILURE = re.compile(r"[Cc]ommand not found|No such file")


@dataclass(frozen=True, slots=True)
class PortInterface:
    """One port of an RDMA device, and its network interface; `up` is None if the tool cannot tell.

    Only `-v` gives what follows: `state` is the RDMA port's own, `board` the kind of device and its part number.
    """

    device: str
    port: int
    netdev: str
    up: bool | None
    state: str | None = None
    pci_address: str | None = None
    firmware: str | None = None
    board: str | None = None
    description: str | None = None


@dataclass(frozen=True, slots=True)
class Ibdev2netdev:
    """The ports in the order printed."""

    ports: tuple[PortInterface, ...]


def parse_ibdev2netdev(text: str) -> Ibdev2netdev:
    """Read the output; raise ParseError without a port, and for a row that is cut."""
    lines = list(rows_of(text, IBDEV2NETDEV_TOOL))
    ports = []
    for line in lines:
        match = _ROW.fullmatch(line.text) or _VERBOSE.fullmatch(line.text) or _OLD_ROW.fullmatch(line.text)
        if match:
            ports.append(_port(match.groupdict()))
        elif _BEGINS_AS_ROW.match(line.text):
            raise unreadable(IBDEV2NETDEV_TOOL, line, "the row is cut")
    if not ports:
        raise nothing_found(IBDEV2NETDEV_TOOL, "port", lines, _FAILURE)
    return Ibdev2netdev(tuple(ports))


def _port(row: dict[str, str | None]) -> PortInterface:
    return PortInterface(
        device=row["device"] or "",
        port=int(row["port"] or 0),
        netdev=row["netdev"] or "",
        up=_STATES[row.get("link") or ""],
        state=row.get("state"),
        pci_address=row.get("pci"),
        firmware=row.get("firmware"),
        board=(row.get("board") or "").strip() or None,
        description=(row.get("about") or "").strip() or None,
    )


# Reads `rdma link`, as text or with -j.

RDMA_LINK_TOOL = "rdma-link"
_PROGRAM = "rdma link"
# iproute2 before 4.19 numbered the links: `1/1: mlx5_0/1: state ACTIVE …`
_LINK = re.compile(r"\s*(?:link |\d+/\d+: )(\S+?)/(\d{1,3}):?(?: (.*))?")
# a row that is cut behind its name, and the rest of one whose beginning is cut or garbled
_CUT = re.compile(r"\s*(?:link\s+\S+|\d+/\d+: \S+/\S+)\s*|.*\bstate [A-Z_]+ physical_state\b.*")
_RDMA_LINK_STATES = ("NOP", "DOWN", "INIT", "ARMED", "ACTIVE", "ACTIVE_DEFER")
_PHYSICAL_STATES = (
    *("NOP", "SLEEP", "POLLING", "DISABLED", "PORT_CONFIGURATION_TRAINING", "LINK_UP", "LINK_ERROR_RECOVER"),
    *("LINK_ERROR_RECOVERY", "PHY_TEST"),
)
_WORDS = frozenset(
    ("state", "physical_state", "netdev", "netdev_index", "subnet_prefix", "lid", "sm_lid", "lmc", "ifindex")
)


@dataclass(frozen=True, slots=True)
class RdmaPort:
    """One port; `netdev` is None on InfiniBand and where the interface is in another namespace."""

    device: str
    port: int
    state: str
    physical_state: str
    netdev: str | None
    lid: int | None


@dataclass(frozen=True, slots=True)
class RdmaLink:
    """The ports in the order printed."""

    links: tuple[RdmaPort, ...]


def parse_rdma_link(text: str) -> RdmaLink:
    """Read the output; raise ParseError without a link, and for a row that is cut."""
    links = []
    for line in rows_of(text, _PROGRAM):
        if match := _LINK.fullmatch(line.text):
            links.append(_link(match[1], int(match[2]), match[3] or "", line))
        elif _CUT.fullmatch(line.text):
            raise unreadable(_PROGRAM, line, "the row is cut or garbled")
    if links:
        return RdmaLink(tuple(links))
    try:
        rows = json_document(text, _PROGRAM, _is_links)
    except ParseError as error:
        raise ParseError(f"{error} (neither rows that begin with 'link' nor JSON)") from error
    return RdmaLink(tuple(_from_json(row) for row in rows))


def _link(device: str, port: int, rest: str, line: Line) -> RdmaPort:
    tokens = rest.split()
    values = dict(zip(tokens[::2], tokens[1::2], strict=False))
    if len(tokens) % 2 or not {"state", "physical_state"} <= values.keys() or not values.keys() <= _WORDS:
        raise unreadable(_PROGRAM, line, "the row is cut or garbled")
    for name, words_of_it in (("state", _RDMA_LINK_STATES), ("physical_state", _PHYSICAL_STATES)):
        if values[name] not in words_of_it and any(state_name.startswith(values[name]) for state_name in words_of_it):
            raise unreadable(_PROGRAM, line, f"the {name} is cut")
    lid = values.get("lid")
    if lid is not None and not re.fullmatch(r"\d{1,9}", lid):
        raise unreadable(_PROGRAM, line, f"lid {lid!r} is no number")
    return RdmaPort(
        device, port, values["state"], values["physical_state"], values.get("netdev"), None if lid is None else int(lid)
    )


def _is_links(document: Any) -> bool:
    return isinstance(document, list) and all(
        isinstance(row, dict) and {"ifname", "port"} <= row.keys() for row in document
    )


def _from_json(row: Mapping[str, Any]) -> RdmaPort:
    names = [text_of(row, key, _PROGRAM) for key in ("ifname", "state", "physical_state")]
    port = whole(row, "port", _PROGRAM)
    if None in names or port is None:
        raise ParseError(f"{_PROGRAM}: {str(row)[:200]!r} lacks its name, port or state")
    device, state, physical_state = (name or "" for name in names)
    return RdmaPort(device, port, state, physical_state, text_of(row, "netdev", _PROGRAM), whole(row, "lid", _PROGRAM))


# Reads `show_gids`, the table of GIDs with the address, the RoCE version and the interface of each.

SHOW_GIDS_TOOL = "show-gids"
_SHOW_GIDS_PROGRAM = "show_gids"
_HEADER = re.compile(r"\s*DEV\s+PORT\s+INDEX\s+GID\s+")
_COUNT = re.compile(r"\s*n_gids_found=\d+\s*")
_SHOW_GIDS_ROW = re.compile(r"\s*(\S+)\s+(\d{1,3})\s+(\d{1,5})\s+((?:[0-9a-fA-F]{4}:){7}[0-9a-fA-F]{4})(?:\s+(.*))?")
_ROW_START = re.compile(r"\s*[\w.-]+\s+\d+(?:\s+\d+(?:\s+[0-9a-fA-F:]+)?)?\s*")
_ADDRESS = re.compile(r"\d{1,3}(?:\.\d{1,3}){3}")
_SHOW_GIDS_FAILURE = re.compile(r"[Cc]ommand not found|No such file or directory")
_VERSION = re.compile(r"v\d(?:\.\d)?")


@dataclass(frozen=True, slots=True)
class Gid:
    """One entry; `version` and `netdev` are None on InfiniBand, `ipv4` where the GID holds no such address."""

    device: str
    port: int
    index: int
    gid: str
    ipv4: str | None
    version: str | None
    netdev: str | None


@dataclass(frozen=True, slots=True)
class ShowGids:
    """The entries in the order printed."""

    gids: tuple[Gid, ...]


def parse_show_gids(text: str) -> ShowGids:
    """Read the output; raise ParseError without the table, and for a row that is cut or garbled."""
    gids: list[Gid] = []
    has_table = False
    lines = list(rows_of(text, _SHOW_GIDS_PROGRAM))
    for line in lines:
        if match := _SHOW_GIDS_ROW.fullmatch(line.text):
            gids.append(_gid(match, line, is_last=line is lines[-1]))
        elif _HEADER.match(line.text) or _COUNT.fullmatch(line.text):
            has_table = True
        elif has_table and _ROW_START.fullmatch(line.text):
            raise unreadable(_SHOW_GIDS_PROGRAM, line, "the row is cut or garbled")
    if not (has_table or gids):
        raise nothing_found(_SHOW_GIDS_PROGRAM, "table of GIDs", lines, _SHOW_GIDS_FAILURE)
    return ShowGids(tuple(gids))


def _gid(match: re.Match[str], line: Line, *, is_last: bool) -> Gid:
    tokens = (match[5] or "").split()
    ipv4 = tokens.pop(0) if tokens and _ADDRESS.fullmatch(tokens[0]) else None
    version = tokens.pop(0) if tokens and _VERSION.fullmatch(tokens[0]) else None
    netdev = tokens.pop(0) if tokens else None
    # the script prints a tab after the version, then the interface, which may be gone
    lacks_end = is_last and version is not None and netdev is None and line.text.endswith(version)
    if tokens or (netdev and not version) or (ipv4 and not version) or lacks_end:
        raise unreadable(_SHOW_GIDS_PROGRAM, line, "the row is cut or garbled")
    return Gid(match[1], int(match[2]), int(match[3]), match[4], ipv4, version, netdev)
