"""Reads ethtool: -i (driver), -g (rings), -S (statistics), -m (the module's optics)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from nodectl.errors import ParseError
from nodectl.facts.parsers.text import Line, foreign, lines_of, unreadable, untagged, whole

I_TOOL = "ethtool-i"
G_TOOL = "ethtool-g"
S_TOOL = "ethtool-s"
M_TOOL = "ethtool-m"
_ROW = re.compile(r"(?P<label>[^:\s][^:]{0,100}?)\s*:\s*(?P<value>.*)")
_FAILURE = re.compile(
    r"(?:[Cc]annot get|netlink error|no stats available|bad command line|command not found|No such device"
    r"|Operation not (?:supported|permitted)).*"
)
# statistics have colons of their own: `rx_queue_0: bytes: 7` does not exist, `[0]: rx_ucast_packets: 7` does
_COUNTER = re.compile(r"(?P<name>\S(?:.{0,120}\S)?):\s*(?P<value>\d{1,20})")
_RINGS = {"RX": "rx", "TX": "tx"}
_MAXIMUM, _CURRENT = "Pre-set maximums", "Current hardware settings"


class _Row(NamedTuple):
    line: Line
    label: str
    value: str


@dataclass(frozen=True, slots=True)
class EthtoolI:
    """The driver of an interface; None for what is empty or N/A."""

    driver: str
    version: str | None
    firmware: str | None
    bus_info: str | None


@dataclass(frozen=True, slots=True)
class EthtoolG:
    """Descriptors of the rings; None where the device has none of that kind."""

    rx: int | None
    rx_max: int | None
    tx: int | None
    tx_max: int | None


@dataclass(frozen=True, slots=True)
class EthtoolS:
    """The counters under the driver's own names."""

    counters: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class EthtoolM:
    """The module as printed, by label; a label that comes again (one for each lane) has the values of all."""

    values: Mapping[str, tuple[str, ...]]
    vendor: str | None
    part_number: str | None
    serial_number: str | None
    temperature_c: float | None


def parse_ethtool_i(text: str) -> EthtoolI:
    """Read the output; raise ParseError where no driver is named, with ethtool's own reason."""
    values = {row.label: row.value for row in _rows(text, I_TOOL)}
    if not values.get("driver"):
        raise ParseError(f"{I_TOOL}: no driver is named")
    version, firmware, bus = (values.get(name) or "" for name in ("version", "firmware-version", "bus-info"))
    return EthtoolI(
        values["driver"], *(None if word in ("", "N/A", "n/a") else word for word in (version, firmware, bus))
    )


def parse_ethtool_g(text: str) -> EthtoolG:
    """Read the output; raise ParseError without both sections, or for a ring that is no number."""
    sections: dict[str, dict[str, int | None]] = {}
    section: dict[str, int | None] = {}
    for row in _rows(text, G_TOOL):
        if row.label in (_MAXIMUM, _CURRENT):
            section = sections.setdefault(row.label, {})
        elif row.label in _RINGS:
            if whole(row.value) is None and row.value.lower() != "n/a":
                raise unreadable(G_TOOL, row.line, "no number")
            section[_RINGS[row.label]] = whole(row.value)
    if set(sections) != {_MAXIMUM, _CURRENT} or any(
        "rx" not in part and "tx" not in part for part in sections.values()
    ):
        raise ParseError(f"{G_TOOL}: no '{_MAXIMUM}' and '{_CURRENT}' with their rings: the output is cut")
    most, now = sections[_MAXIMUM], sections[_CURRENT]
    return EthtoolG(now.get("rx"), most.get("rx"), now.get("tx"), most.get("tx"))


def parse_ethtool_s(text: str) -> EthtoolS:
    """Read the output; raise ParseError for a counter without its number, and where there is none."""
    counters: dict[str, int] = {}
    lines = list(untagged(lines_of(text, S_TOOL)))
    for line in lines:
        content = line.text.strip()
        if match := _COUNTER.fullmatch(content):
            counters[match["name"]] = int(match["value"])
        elif counters and content:
            raise unreadable(S_TOOL, line, "a counter without its number")
    if not counters or not any("statistics" in line.text for line in lines):
        raise _refusal(S_TOOL, lines, "no 'NIC statistics:'")
    return EthtoolS(counters)


def parse_ethtool_m(text: str) -> EthtoolM:
    """Read the output; raise ParseError where no module is described, with ethtool's own reason."""
    values: dict[str, tuple[str, ...]] = {}
    for row in _rows(text, M_TOOL):
        values[row.label] = (*values.get(row.label, ()), row.value)
    if "Identifier" not in values:
        raise ParseError(f"{M_TOOL}: no 'Identifier' of a module")
    vendor, part, serial = (values.get(name, ("",))[0] or None for name in ("Vendor name", "Vendor PN", "Vendor SN"))
    degrees = re.match(r"(-?\d{1,3}(?:\.\d{1,4})?) degrees C", values.get("Module temperature", ("",))[0])
    return EthtoolM(values, vendor, part, serial, float(degrees[1]) if degrees else None)


def _rows(text: str, tool: str) -> Iterator[_Row]:
    lines = list(untagged(lines_of(text, tool)))
    rows = [
        _Row(line, match["label"].strip(), match["value"].strip())
        for line in lines
        if not _FAILURE.match(line.text.strip()) and (match := _ROW.fullmatch(line.text.strip()))
    ]
    if not rows:
        raise _refusal(tool, lines, "no 'label: value'")
    yield from rows


def _refusal(tool: str, lines: list[Line], missing: str) -> ParseError:
    reason = next((line for line in lines if _FAILURE.search(line.text)), None)
    return unreadable(tool, reason, "this is why it failed") if reason else foreign(tool, lines, missing)
