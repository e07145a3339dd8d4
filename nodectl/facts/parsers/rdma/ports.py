"""Reads `ibstat`, `ibstatus` and `ibv_devinfo`: the RDMA devices of a host and their ports."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache

from nodectl.facts.parsers.rdma.labelled import Block, first_match, is_cut_label, labelled, nothing_found, rows_of
from nodectl.facts.parsers.text import Line, unreadable

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
    """Read the output; raise ParseError without a single adapter, with ibstat's reason, and for a row that is cut."""
    lines = list(rows_of(text, IBSTAT_TOOL))
    adapters: list[tuple[str, Block, list[tuple[int, Block]]]] = []
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
        raise nothing_found(IBSTAT_TOOL, "adapter", lines, _FAILURE)
    return Ibstat(tuple(_adapter(*adapter) for adapter in adapters), first_match(lines, _FAILURE))


def _put(adapter: tuple[str, Block, list[tuple[int, Block]]], line: Line) -> None:
    _, head, ports = adapter
    if match := _PORT.fullmatch(line.text):
        ports.append((int(match[1]), Block(IBSTAT_TOOL)))
    elif (match := _LABEL.fullmatch(line.text)) and match[1] in _LABELS:
        (ports[-1][1] if ports else head).put(match[1], line, match[2])
    elif is_cut_label(line.text, _LABELS):
        raise unreadable(IBSTAT_TOOL, line, "the row is cut")


def _adapter(name: str, head: Block, ports: list[tuple[int, Block]]) -> Adapter:
    adapter = head.read(Adapter, name=name)
    return replace(adapter, ports=tuple(block.read(Port, port=number) for number, block in ports))


# Reads `ibstatus`, which shows what the kernel says of each InfiniBand and RoCE port.

IBSTATUS_TOOL = "ibstatus"
_IBSTATUS_PORT = re.compile(r"\s*Infiniband device '([^']+)' port (\d{1,3}) status:\s*")
# a state's number without its name, a GID of fewer than eight groups
_CUT_VALUE = re.compile(
    r"\s*(?:(?:phys )?state:\s*\d{1,3}|default gid:\s*(?!.*::)(?=.{0,38}$)[0-9a-f]{1,4}(?::[0-9a-f]{0,4}){0,7})\s*"
)
_IBSTATUS_FIRST = "default gid"  # of each port
_IBSTATUS_LABELS = (_IBSTATUS_FIRST, "base lid", "sm lid", "state", "phys state", "rate", "link_layer")
_IBSTATUS_LABEL = re.compile(rf"\s*({'|'.join(_IBSTATUS_LABELS)}):(.*)")
_IBSTATUS_STATES = ("DOWN", "INIT", "ARMED", "ACTIVE", "ACTIVE_DEFER", "NOP")
_IBSTATUS_PHYSICAL_STATES = (
    *("Sleep", "Polling", "Disabled", "PortConfigurationTraining", "LinkUp", "LinkErrorRecovery", "Phy Test"),
    "<unknown>",
)
_RATE = r"(\d+(?:\.\d+)?) Gb/sec(?: \([^)]*\))?"
_IBSTATUS_FAILURE = re.compile(r"Fatal error:|[Cc]ommand not found")


@dataclass(frozen=True, slots=True)
class PortStatus:
    """One port; `rate_text` names the lanes and their speed, on Ethernet by InfiniBand's name for it."""

    device: str
    port: int
    state: str | None = labelled(Block.text, "state", _IBSTATUS_STATES)
    physical_state: str | None = labelled(Block.text, "phys state", _IBSTATUS_PHYSICAL_STATES)
    rate_gbit_s: float | None = labelled(Block.number, "rate", _RATE)
    rate_text: str | None = labelled(Block.text, "rate")
    link_layer: str | None = labelled(Block.link_layer, "link_layer")
    gid: str | None = labelled(Block.text, "default gid")
    lid: int | None = labelled(Block.whole, "base lid")
    unavailable: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Ibstatus:
    """The ports in the order printed."""

    ports: tuple[PortStatus, ...]


def parse_ibstatus(text: str) -> Ibstatus:
    """Read the output; raise ParseError without a port, with the tool's reason, and for a row that is cut."""
    lines = list(rows_of(text, IBSTATUS_TOOL))
    ports: list[tuple[str, int, Block]] = []
    for line in lines:
        if match := _IBSTATUS_PORT.fullmatch(line.text):
            ports.append((match[1], int(match[2]), Block(IBSTATUS_TOOL)))
        elif line.text.lstrip().startswith("Infiniband device '"):
            raise unreadable(IBSTATUS_TOOL, line, "the port's name is cut")
        elif (
            (match := _IBSTATUS_LABEL.fullmatch(line.text))
            and match[1] == _IBSTATUS_FIRST
            and (not ports or _IBSTATUS_FIRST in ports[-1][2])
        ):
            raise unreadable(IBSTATUS_TOOL, line, "the line with the name of its port is cut or garbled")
        elif ports and match:
            if not match[2].strip() or _CUT_VALUE.fullmatch(match[0]):
                raise unreadable(IBSTATUS_TOOL, line, "the row is cut")
            ports[-1][2].put(match[1], line, _without_code(match[1], match[2]))
        elif ports and is_cut_label(line.text, _IBSTATUS_LABELS):
            raise unreadable(IBSTATUS_TOOL, line, "the row is cut")
    if not ports:
        raise nothing_found(IBSTATUS_TOOL, "port", lines, _IBSTATUS_FAILURE)
    return Ibstatus(tuple(block.read(PortStatus, device=device, port=port) for device, port, block in ports))


def _without_code(label: str, value: str) -> str:
    """Return a state without its number: `4: ACTIVE` is `ACTIVE`."""
    return re.sub(r"^\s*\d+:(?: |$)", "", value) if label in ("state", "phys state") else value


# Reads `ibv_devinfo` and `ibv_devinfo -v`.

IBV_DEVINFO_TOOL = "ibv-devinfo"
_PROGRAM = "ibv_devinfo"
_DEVICE = re.compile(r"\s*hca_id:(.*)")
_IBV_DEVINFO_PORT = re.compile(r"\s*port:(.*)")
_PORT_NUMBER = re.compile(r"\d{1,3}")
_GID = re.compile(r"\s*GID\[\s*(\d{1,5})\]:\s*([0-9a-fA-F:.]{2,45})(?:,(.*))?\s*")
_IBV_DEVINFO_LABEL = re.compile(r"\s*([a-z_]+):(.*)")
# `PORT_ACTIVE (4)`, `4096 (5)`: the word, and the verbs library's number for it
_CODE = re.compile(r"(.*)\(\d+\)")
_HEAD = ("transport", "fw_ver", "node_guid", "sys_image_guid", "vendor_part_id", "board_id", "phys_port_cnt")
_OF_PORT = ("state", "max_mtu", "active_mtu", "sm_lid", "port_lid", "link_layer", "active_width", "active_speed")
_WITH_CODE = ("transport", "state", "max_mtu", "active_mtu", "active_width", "active_speed")
_IBV_DEVINFO_FAILURE = re.compile(
    r"No IB devices found|IB device '.*' wasn't found|Failed to (?:open|query|get) |Invalid port requested"
    r"|[Cc]ommand not found"
)


@dataclass(frozen=True, slots=True)
class PortGid:
    """A row of the GID table that -v prints; `type` is that of RoCE, where printed."""

    index: int
    gid: str
    type: str | None


@dataclass(frozen=True, slots=True)
class DevicePort:
    """One port; width and speed a lane only with -v."""

    port: int
    state: str | None = labelled(Block.text, "state")
    max_mtu_bytes: int | None = labelled(Block.whole, "max_mtu")
    active_mtu_bytes: int | None = labelled(Block.whole, "active_mtu")
    link_layer: str | None = labelled(Block.link_layer, "link_layer")
    lid: int | None = labelled(Block.whole, "port_lid")
    active_width: str | None = labelled(Block.text, "active_width")
    active_speed: str | None = labelled(Block.text, "active_speed")
    gids: tuple[PortGid, ...] = ()
    unavailable: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Device:
    """One RDMA device with the ports that were printed."""

    name: str
    transport: str | None = labelled(Block.text, "transport")
    firmware: str | None = labelled(Block.text, "fw_ver")
    node_guid: str | None = labelled(Block.guid, "node_guid")
    system_image_guid: str | None = labelled(Block.guid, "sys_image_guid")
    board_id: str | None = labelled(Block.text, "board_id")
    ports: tuple[DevicePort, ...] = ()
    unavailable: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class IbvDevinfo:
    """The devices in the order printed; `error` is what the tool said when it gave up on one."""

    devices: tuple[Device, ...]
    error: str | None = None


class _PortBlock(Block):
    def __init__(self, number: int) -> None:
        super().__init__(_PROGRAM)
        self.index = number
        self.gids: list[PortGid] = []


def parse_ibv_devinfo(text: str) -> IbvDevinfo:
    """Read the output; raise ParseError without a device, with the tool's reason, and for a row that is cut."""
    lines = list(rows_of(text, _PROGRAM))
    devices: list[tuple[str, Block, list[_PortBlock]]] = []
    for line in lines:
        if "hca_id:" in line.text and (match := _DEVICE.fullmatch(line.text)):
            if not match[1].strip():
                raise unreadable(_PROGRAM, line, "the device's name is cut")
            devices.append((match[1].strip(), Block(_PROGRAM), []))
        elif devices:
            _ibv_devinfo_put(devices[-1], line)
    if not devices:
        raise nothing_found(_PROGRAM, "device", lines, _IBV_DEVINFO_FAILURE)
    return IbvDevinfo(tuple(_device(*device) for device in devices), first_match(lines, _IBV_DEVINFO_FAILURE))


def _ibv_devinfo_put(device: tuple[str, Block, list[_PortBlock]], line: Line) -> None:
    _, head, ports = device
    match = _form(line.text)
    if match is None:
        if is_cut_label(line.text, _OF_PORT if ports else _HEAD):
            raise unreadable(_PROGRAM, line, "the row is cut")
    elif match.re is _IBV_DEVINFO_PORT:
        if not _PORT_NUMBER.fullmatch(match[1].strip()):
            raise unreadable(_PROGRAM, line, "the port's number is cut or garbled")
        ports.append(_PortBlock(int(match[1])))
    elif match.re is _GID:
        if ports:
            ports[-1].gids.append(PortGid(int(match[1]), match[2], (match[3] or "").strip() or None))
    elif match[1] in (_OF_PORT if ports else _HEAD):
        (ports[-1] if ports else head).put(match[1], line, _ibv_devinfo_without_code(match[1], match[2].strip(), line))


@lru_cache(maxsize=2048)
def _form(text: str) -> re.Match[str] | None:
    """Return the match of the first pattern that reads the line; devices of one kind print most lines alike."""
    return _IBV_DEVINFO_PORT.fullmatch(text) or _GID.fullmatch(text) or _IBV_DEVINFO_LABEL.fullmatch(text)


@lru_cache(maxsize=256)
def _coded(value: str) -> str | None:
    """Return the word before the number in brackets; None if that is missing."""
    match = _CODE.fullmatch(value)
    return None if match is None else match[1].rstrip()


def _ibv_devinfo_without_code(label: str, value: str, line: Line) -> str:
    if label not in _WITH_CODE:
        return value
    word = _coded(value)
    if word is None:
        raise unreadable(_PROGRAM, line, "the number in brackets is missing")
    return word


def _device(name: str, head: Block, ports: list[_PortBlock]) -> Device:
    # the device first, then its ports: what is cut is told of the first row that is
    values = head.values(Device)
    read = (block.read(DevicePort, port=block.index, gids=tuple(block.gids)) for block in ports)
    return Device(name=name, ports=tuple(read), unavailable=head.unavailable, **values)
