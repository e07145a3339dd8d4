"""Reads `ibdev2netdev`, with `-v` too: the network interface of each RDMA port, and whether that is up."""

from __future__ import annotations

import re
from dataclasses import dataclass

from nodectl.parsers.rdma.labelled import nothing_found, rows_of
from nodectl.parsers.text import unreadable

TOOL = "ibdev2netdev"
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
    """One port of an RDMA device, and its network interface; `up` is None where the tool cannot tell.

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
    """ParseError without a port, and for a row that is cut."""
    lines = list(rows_of(text, TOOL))
    ports = []
    for line in lines:
        match = _ROW.fullmatch(line.text) or _VERBOSE.fullmatch(line.text) or _OLD_ROW.fullmatch(line.text)
        if match:
            ports.append(_port(match.groupdict()))
        elif _BEGINS_AS_ROW.match(line.text):
            raise unreadable(TOOL, line, "the row is cut")
    if not ports:
        raise nothing_found(TOOL, "port", lines, _FAILURE)
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
