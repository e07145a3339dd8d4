"""Reads `ibstat`, `ibv_devinfo` and `rdma link`: the RDMA devices of a host and their ports."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, TypeVar

from nodectl.facts.parsers.rdma.labelled import (
    LINK_LAYERS,
    Block,
    first_match,
    is_cut_label,
    labelled,
    rows_of,
)
from nodectl.facts.parsers.text import Line, foreign, unreadable

T = TypeVar("T")
_Ports = list[tuple[int, Block]]
# a device by its name, with its own rows and those of its ports
_Blocks = tuple[str, Block, _Ports]

IBSTAT_TOOL = "ibstat"
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
    rate_gbit_s: float | None = labelled(Block.number, "Rate")
    lid: int | None = labelled(Block.whole, "Base lid")
    sm_lid: int | None = labelled(Block.whole, "SM lid")
    link_layer: str | None = labelled(Block.text, "Link layer", LINK_LAYERS)
    guid: str | None = labelled(Block.guid, "Port GUID")
    unavailable: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Adapter:
    """One channel adapter and the ports that were printed."""

    name: str
    type: str | None = labelled(Block.text, "CA type")
    firmware: str | None = labelled(Block.text, "Firmware version")
    node_guid: str | None = labelled(Block.guid, "Node GUID")
    ports: tuple[Port, ...] = ()
    unavailable: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Ibstat:
    """The adapters; `error` is what ibstat said when it gave up on the next one."""

    adapters: tuple[Adapter, ...]
    error: str | None = None


def parse_ibstat(text: str) -> Ibstat:
    """Read the output; raise ParseError without a single adapter, with ibstat's reason, and for a row that is cut."""
    lines = list(rows_of(text, IBSTAT_TOOL))
    adapters: list[_Blocks] = []
    for line in lines:
        if match := _ADAPTER.fullmatch(line.text):
            adapters.append((match[1], Block(IBSTAT_TOOL), []))
        elif _ADAPTER_START.match(line.text):
            raise unreadable(IBSTAT_TOOL, line, "the adapter's name is cut")
        elif (
            (match := _LABEL.fullmatch(line.text))
            and match[1] == _FIRST
            and (not adapters or _FIRST in adapters[-1][1])
        ):
            raise unreadable(IBSTAT_TOOL, line, "the line with the name of its adapter is cut or garbled")
        elif adapters:
            _put(adapters[-1], line)
    if not adapters:
        raise foreign(IBSTAT_TOOL, lines, "no adapter", _FAILURE)
    read = tuple(_read(Adapter, Port, *adapter) for adapter in adapters)
    return Ibstat(read, first_match(lines, _FAILURE))


def _put(adapter: _Blocks, line: Line) -> None:
    _, head, ports = adapter
    if match := _PORT.fullmatch(line.text):
        ports.append((int(match[1]), Block(IBSTAT_TOOL)))
    elif (match := _LABEL.fullmatch(line.text)) and match[1] in _LABELS:
        (ports[-1][1] if ports else head).put(match[1], line, match[2])
    elif is_cut_label(line.text, _LABELS):
        raise unreadable(IBSTAT_TOOL, line, "the row is cut")


def _read(device: Callable[..., T], port: Callable[..., Any], name: str, head: Block, ports: _Ports) -> T:
    """Return the dataclass `device` with its ports; a cut row of the head is reported before one of a port."""
    values = head.values(device)
    read = tuple(block.read(port, port=number) for number, block in ports)
    return device(name=name, ports=read, unavailable=head.unavailable, **values)


# Reads `ibv_devinfo` and `ibv_devinfo -v`.

IBV_DEVINFO_TOOL = "ibv-devinfo"
_PROGRAM = "ibv_devinfo"
_DEVICE = re.compile(r"\s*hca_id:(.*)")
_IBV_DEVINFO_LABEL = re.compile(r"\s*([a-z_]+):(.*)")
_PORT_NUMBER = re.compile(r"\d{1,3}")
# `PORT_ACTIVE (4)`, `4096 (5)`: the word, and the verbs library's number for it
_CODE = re.compile(r"(.*)\(\d+\)")
_HEAD = ("transport", "fw_ver", "node_guid", "board_id", "phys_port_cnt")
_OF_PORT = ("state", "max_mtu", "active_mtu", "port_lid", "link_layer")
_WITH_CODE = ("transport", "state", "max_mtu", "active_mtu")
_IBV_DEVINFO_FAILURE = re.compile(
    r"No IB devices found|IB device '.*' wasn't found|Failed to (?:open|query|get) |Invalid port requested"
    r"|[Cc]ommand not found"
)


@dataclass(frozen=True, slots=True)
class DevicePort:
    """One port of a device."""

    port: int
    state: str | None = labelled(Block.text, "state")
    max_mtu_bytes: int | None = labelled(Block.whole, "max_mtu")
    active_mtu_bytes: int | None = labelled(Block.whole, "active_mtu")
    link_layer: str | None = labelled(Block.text, "link_layer", LINK_LAYERS)
    lid: int | None = labelled(Block.whole, "port_lid")
    unavailable: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Device:
    """One RDMA device with the ports that were printed."""

    name: str
    transport: str | None = labelled(Block.text, "transport")
    firmware: str | None = labelled(Block.text, "fw_ver")
    node_guid: str | None = labelled(Block.guid, "node_guid")
    board_id: str | None = labelled(Block.text, "board_id")
    ports: tuple[DevicePort, ...] = ()
    unavailable: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class IbvDevinfo:
    """The devices in the order printed; `error` is the tool's complaint about a device that it could not read."""

    devices: tuple[Device, ...]
    error: str | None = None


def parse_ibv_devinfo(text: str) -> IbvDevinfo:
    """Read the output; raise ParseError without a device, with the tool's reason, and for a row that is cut."""
    lines = list(rows_of(text, _PROGRAM))
    devices: list[_Blocks] = []
    for line in lines:
        if "hca_id:" in line.text and (match := _DEVICE.fullmatch(line.text)):
            if not match[1].strip():
                raise unreadable(_PROGRAM, line, "the device's name is cut")
            devices.append((match[1].strip(), Block(_PROGRAM), []))
        elif devices:
            _ibv_devinfo_put(devices[-1], line)
    if not devices:
        raise foreign(_PROGRAM, lines, "no device", _IBV_DEVINFO_FAILURE)
    read = tuple(_read(Device, DevicePort, *device) for device in devices)
    return IbvDevinfo(read, first_match(lines, _IBV_DEVINFO_FAILURE))


def _ibv_devinfo_put(device: _Blocks, line: Line) -> None:
    _, head, ports = device
    labels = _OF_PORT if ports else _HEAD
    match = _row(line.text)
    if match is None:
        if is_cut_label(line.text, labels):
            raise unreadable(_PROGRAM, line, "the row is cut")
        return
    label, value = match[1], match[2].strip()
    if label == "port":
        if not _PORT_NUMBER.fullmatch(value):
            raise unreadable(_PROGRAM, line, "the port's number is cut or garbled")
        ports.append((int(value), Block(_PROGRAM)))
    elif label in labels:
        if label in _WITH_CODE:
            code = _CODE.fullmatch(value)
            if code is None:
                raise unreadable(_PROGRAM, line, "the number in brackets is missing")
            value = code[1].rstrip()
        (ports[-1][1] if ports else head).put(label, line, value)


@lru_cache(maxsize=2048)
def _row(text: str) -> re.Match[str] | None:
    return _IBV_DEVINFO_LABEL.fullmatch(text)


# Reads `rdma link`.

RDMA_LINK_TOOL = "rdma-link"
_RDMA_LINK = "rdma link"
# iproute2 before 4.19 numbered the links: `1/1: mlx5_0/1: state ACTIVE …`
_LINK = re.compile(r"\s*(?:link |\d+/\d+: )(\S+?)/(\d{1,3}):?(?: (.*))?")
# a row that is cut behind its name, and the rest of one whose beginning is cut or garbled
_CUT_LINK = re.compile(r"\s*(?:link\s+\S+|\d+/\d+: \S+/\S+)\s*|.*\bstate [A-Z_]+ physical_state\b.*")
_LINK_STATES = ("NOP", "DOWN", "INIT", "ARMED", "ACTIVE", "ACTIVE_DEFER")
_PHYSICAL_LINK_STATES = (
    *("NOP", "SLEEP", "POLLING", "DISABLED", "PORT_CONFIGURATION_TRAINING", "LINK_UP", "LINK_ERROR_RECOVER"),
    *("LINK_ERROR_RECOVERY", "PHY_TEST"),
)
_LINK_WORDS = frozenset(
    ("state", "physical_state", "netdev", "netdev_index", "subnet_prefix", "lid", "sm_lid", "lmc", "ifindex")
)
_LINK_FAILURE = re.compile(r"[Cc]ommand not found|No such file")


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
    lines = list(rows_of(text, _RDMA_LINK))
    for line in lines:
        if match := _LINK.fullmatch(line.text):
            links.append(_rdma_port(match[1], int(match[2]), match[3] or "", line))
        elif _CUT_LINK.fullmatch(line.text):
            raise unreadable(_RDMA_LINK, line, "the row is cut or garbled")
    if not links:
        raise foreign(_RDMA_LINK, lines, "no row that begins with 'link'", _LINK_FAILURE)
    return RdmaLink(tuple(links))


def _rdma_port(device: str, port: int, rest: str, line: Line) -> RdmaPort:
    tokens = rest.split()
    values = dict(zip(tokens[::2], tokens[1::2], strict=False))
    if len(tokens) % 2 or not {"state", "physical_state"} <= values.keys() or not values.keys() <= _LINK_WORDS:
        raise unreadable(_RDMA_LINK, line, "the row is cut or garbled")
    for name, words_of_it in (("state", _LINK_STATES), ("physical_state", _PHYSICAL_LINK_STATES)):
        if values[name] not in words_of_it and any(state_name.startswith(values[name]) for state_name in words_of_it):
            raise unreadable(_RDMA_LINK, line, f"the {name} is cut")
    lid = values.get("lid")
    if lid is not None and not re.fullmatch(r"\d{1,9}", lid):
        raise unreadable(_RDMA_LINK, line, f"lid {lid!r} is no number")
    return RdmaPort(
        device, port, values["state"], values["physical_state"], values.get("netdev"), None if lid is None else int(lid)
    )
