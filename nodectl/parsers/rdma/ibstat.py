"""Reads `ibstat`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from nodectl.parsers.rdma.labelled import Block, first_match, is_cut_label, labelled, nothing_found, rows_of
from nodectl.parsers.text import Line, unreadable

TOOL = "ibstat"
_ADAPTER = re.compile(r"\s*(?:CA|Switch|Router|iWARP RNIC|\?\?\?):? '([^']+)'\s*")
_ADAPTER_START = re.compile(r"\s*(?:CA|Switch|Router|iWARP RNIC|\?\?\?):? '")
_PORT = re.compile(r"\s*Port (\d{1,3}):\s*")
_LABEL = re.compile(r"\s*([A-Z][A-Za-z]*(?: [A-Za-z]+){0,3}):(.*)")
_FIRST = "CA type"  # of each adapter
_LABELS = (
    *(_FIRST, "Number of ports", "Firmware version", "Hardware version", "Node GUID", "System image GUID"),
    *("State", "Physical state", "Rate", "Base lid", "LMC", "SM lid", "Capability mask", "Port GUID", "Link layer"),
)
_STATES = ("Down", "Initializing", "Armed", "Active", "ActiveDefer")
_PHYSICAL_STATES = (
    *("No state change", "Sleep", "Polling", "Disabled", "PortConfigurationTraining", "LinkUp"),
    *("LinkErrorRecovery", "PhyTest"),
)
_FAILURE = re.compile(r"ibpanic:|iberror:|can't (?:init|list|open|get) |[Cc]ommand not found|MAD .*fail|umad.* fail")


@dataclass(frozen=True, slots=True)
class Port:
    """One port; a port that is down keeps the rate it would fall back to."""

    port: int
    state: str | None = labelled(Block.text, "State", _STATES)
    physical_state: str | None = labelled(Block.text, "Physical state", _PHYSICAL_STATES)
    rate_gbit_s: float | None = labelled(Block.number, "Rate", r"(\S+)(?: \(FDR10\))?")
    lid: int | None = labelled(Block.whole, "Base lid")
    sm_lid: int | None = labelled(Block.whole, "SM lid")
    link_layer: str | None = labelled(Block.link_layer, "Link layer")
    guid: str | None = labelled(Block.guid, "Port GUID")
    unavailable: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Adapter:
    """One channel adapter and the ports that were printed."""

    name: str
    type: str | None = labelled(Block.text, "CA type")
    firmware: str | None = labelled(Block.text, "Firmware version")
    node_guid: str | None = labelled(Block.guid, "Node GUID")
    system_image_guid: str | None = labelled(Block.guid, "System image GUID")
    ports: tuple[Port, ...] = ()
    unavailable: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Ibstat:
    """The adapters; `error` is what ibstat said when it gave up on the next one."""

    adapters: tuple[Adapter, ...]
    error: str | None = None


def parse_ibstat(text: str) -> Ibstat:
    """ParseError without a single adapter, with ibstat's reason, and for a row that is cut."""
    lines = list(rows_of(text, TOOL))
    adapters: list[tuple[str, Block, list[tuple[int, Block]]]] = []
    for line in lines:
        if match := _ADAPTER.fullmatch(line.text):
            adapters.append((match[1], Block(TOOL), []))
        elif _ADAPTER_START.match(line.text):
            raise unreadable(TOOL, line, "the adapter's name is cut")
        elif (
            (match := _LABEL.fullmatch(line.text))
            and match[1] == _FIRST
            and (not adapters or _FIRST in adapters[-1][1])
        ):
            raise unreadable(TOOL, line, "the line with the name of its adapter is cut or garbled")
        elif adapters:
            _put(adapters[-1], line)
    if not adapters:
        raise nothing_found(TOOL, "adapter", lines, _FAILURE)
    return Ibstat(tuple(_adapter(*adapter) for adapter in adapters), first_match(lines, _FAILURE))


def _is_first(line: Line) -> bool:
    match = _LABEL.fullmatch(line.text)
    return match is not None and match[1] == _FIRST


def _put(adapter: tuple[str, Block, list[tuple[int, Block]]], line: Line) -> None:
    _, head, ports = adapter
    if match := _PORT.fullmatch(line.text):
        ports.append((int(match[1]), Block(TOOL)))
    elif (match := _LABEL.fullmatch(line.text)) and match[1] in _LABELS:
        (ports[-1][1] if ports else head).put(match[1], line, match[2])
    elif is_cut_label(line.text, _LABELS):
        raise unreadable(TOOL, line, "the row is cut")


def _adapter(name: str, head: Block, ports: list[tuple[int, Block]]) -> Adapter:
    adapter = head.read(Adapter, name=name)
    return replace(adapter, ports=tuple(block.read(Port, port=number) for number, block in ports))
