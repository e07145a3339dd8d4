"""Reads `ibv_devinfo` and `ibv_devinfo -v`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from nodectl.parsers.rdma.labelled import Block, first_match, is_cut_label, labelled, nothing_found, rows_of
from nodectl.parsers.text import Line, unreadable

TOOL = "ibv-devinfo"
_PROGRAM = "ibv_devinfo"
_DEVICE = re.compile(r"\s*hca_id:(.*)")
_PORT = re.compile(r"\s*port:(.*)")
_PORT_NUMBER = re.compile(r"\d{1,3}")
_GID = re.compile(r"\s*GID\[\s*(\d{1,5})\]:\s*([0-9a-fA-F:.]{2,45})(?:,(.*))?\s*")
_LABEL = re.compile(r"\s*([a-z_]+):(.*)")
# `PORT_ACTIVE (4)`, `4096 (5)`: the word, and the verbs library's number for it
_CODE = re.compile(r"(.*)\(\d+\)")
_HEAD = ("transport", "fw_ver", "node_guid", "sys_image_guid", "vendor_part_id", "board_id", "phys_port_cnt")
_OF_PORT = ("state", "max_mtu", "active_mtu", "sm_lid", "port_lid", "link_layer", "active_width", "active_speed")
_WITH_CODE = ("transport", "state", "max_mtu", "active_mtu", "active_width", "active_speed")
_FAILURE = re.compile(
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
    """ParseError without a device, with the tool's reason, and for a row that is cut."""
    lines = list(rows_of(text, _PROGRAM))
    devices: list[tuple[str, Block, list[_PortBlock]]] = []
    for line in lines:
        if "hca_id:" in line.text and (match := _DEVICE.fullmatch(line.text)):
            if not match[1].strip():
                raise unreadable(_PROGRAM, line, "the device's name is cut")
            devices.append((match[1].strip(), Block(_PROGRAM), []))
        elif devices:
            _put(devices[-1], line)
    if not devices:
        raise nothing_found(_PROGRAM, "device", lines, _FAILURE)
    return IbvDevinfo(tuple(_device(*device) for device in devices), first_match(lines, _FAILURE))


def _put(device: tuple[str, Block, list[_PortBlock]], line: Line) -> None:
    _, head, ports = device
    match = _form(line.text)
    if match is None:
        if is_cut_label(line.text, _OF_PORT if ports else _HEAD):
            raise unreadable(_PROGRAM, line, "the row is cut")
    elif match.re is _PORT:
        if not _PORT_NUMBER.fullmatch(match[1].strip()):
            raise unreadable(_PROGRAM, line, "the port's number is cut or garbled")
        ports.append(_PortBlock(int(match[1])))
    elif match.re is _GID:
        if ports:
            ports[-1].gids.append(_gid(match))
    elif match[1] in (_OF_PORT if ports else _HEAD):
        (ports[-1] if ports else head).put(match[1], line, _without_code(match[1], match[2].strip(), line))


@lru_cache(maxsize=2048)
def _form(text: str) -> re.Match[str] | None:
    """Return the match of the first pattern that reads the line; devices of one kind print most lines alike."""
    return _PORT.fullmatch(text) or _GID.fullmatch(text) or _LABEL.fullmatch(text)


def _gid(match: re.Match[str]) -> PortGid:
    return PortGid(int(match[1]), match[2], (match[3] or "").strip() or None)


@lru_cache(maxsize=256)
def _coded(value: str) -> str | None:
    """Return the word before the number in brackets; None where that is missing."""
    match = _CODE.fullmatch(value)
    return None if match is None else match[1].rstrip()


def _without_code(label: str, value: str, line: Line) -> str:
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
