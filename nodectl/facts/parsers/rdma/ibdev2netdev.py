"""Reads `ibdev2netdev`: the network interface of each RDMA port."""

from __future__ import annotations

import re
from dataclasses import dataclass

from nodectl.facts.parsers.rdma.labelled import rows_of
from nodectl.facts.parsers.text import foreign, unreadable

TOOL = "ibdev2netdev"
# `-v` prints the PCI address before the device, and its board and firmware behind it
_HEAD = (
    r"\s*(?:(?P<pci_address>[0-9a-fA-F:]{4,14}\.[0-7]) )?(?P<device>[\w.-]{1,64})(?: \(.{1,400}? fw \S{1,64})?"
    r"\s+port\s+(?P<port>\d{1,3})(?: \(\w{1,20} *\))?\s+"
)
# drivers before 2013 print no state of the interface
_ROW = re.compile(rf"{_HEAD}==>\s+(?P<netdev>\S{{1,64}})\s+\((?P<link>Up|Down|NA|)\)\s*(?:#.*)?")
_OLD_ROW = re.compile(rf"{_HEAD}<===>\s+(?P<netdev>\S{{1,64}})\s*")
_BEGINS_AS_ROW = re.compile(r"\s*[\w.-]{1,64}\s+port\s+\d{1,3}(?:\s+[=<]|\s*$)|.* fw \S{1,64}(?: port|\s*$)|.*==>")
_FAILURE = re.compile(r"[Cc]ommand not found|No such file")


@dataclass(frozen=True, slots=True)
class PortInterface:
    """One port of an RDMA device, and its network interface; `up` is None if the tool does not report it."""

    device: str
    port: int
    netdev: str
    up: bool | None
    pci_address: str | None


@dataclass(frozen=True, slots=True)
class Ibdev2netdev:
    """The ports in the order printed."""

    ports: tuple[PortInterface, ...]


def parse_ibdev2netdev(text: str) -> Ibdev2netdev:
    """Read the output; raise ParseError without a port, and for a row that is cut."""
    lines = list(rows_of(text, TOOL))
    ports = []
    for line in lines:
        if match := _ROW.fullmatch(line.text) or _OLD_ROW.fullmatch(line.text):
            up = {"Up": True, "Down": False}.get(match.groupdict().get("link") or "")
            ports.append(PortInterface(match["device"], int(match["port"]), match["netdev"], up, match["pci_address"]))
        elif _BEGINS_AS_ROW.match(line.text):
            raise unreadable(TOOL, line, "the row is cut")
    if not ports:
        raise foreign(TOOL, lines, "no port", _FAILURE)
    return Ibdev2netdev(tuple(ports))
