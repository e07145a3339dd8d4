"""Reads `lspci -vvv` (with or without -D, -nn): which bridges redirect by ACS, and how every PCIe link was trained.

Only root sees the capabilities: what lspci denies is null and stands in `unavailable`, never 'off'.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from nodectl.errors import ParseError
from nodectl.facts.parsers.text import Line, bus_id, foreign, lines_of, plain, real, unreadable, whole

TOOL = "lspci-acs"
_DEVICE = re.compile(
    r"(?P<address>(?:[0-9a-fA-F]{4,8}:)?[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7])\s(?P<kind>[^:]{1,100}):\s?(?P<name>.*)"
)
_BEGINS_AS_DEVICE = re.compile(r"(?:[0-9a-fA-F]{4,8}:)?[0-9a-fA-F]{2}:[0-9a-fA-F]{2}(?:\.|$)")
_PROGRAMMING = re.compile(r"\s{0,4}\(prog-if [0-9a-fA-F]{2}[^)]{0,80}\)")
_LINK = re.compile(r"Lnk(?P<which>Cap|Sta):\s*(?P<rest>.*)")
_TRAINED = re.compile(
    r"(?:Port #\d{1,5}, )?Speed (?P<speed>\d{1,4}(?:\.\d{1,2})?GT/s|<?unknown>?)[^,]{0,40}, "
    r"Width (?P<width>x\d{1,3}|<?unknown>?)(?:[ ,(]|$)"
)
_ACS = re.compile(r"ACSCtl:\s*(?P<flags>.*)")
_FLAGS = re.compile(r"[A-Za-z]{2,24}[+-](?:\s+[A-Za-z]{2,24}[+-]){0,15}\s*")
_READ_REQUEST = re.compile(r"MaxReadReq (\d{2,5}) bytes")
_DENIED = "<access denied>"
_INDENTS = ("\t", " ")
# `lspci -v` prints `Flags:` and no `Control:`, and nothing of links
_DETAILS = (
    "Control:",
    "LnkCap:",
    "LnkSta:",
    "ACSCtl:",
    "MaxPayload ",
    f"Capabilities: {_DENIED}",
    "!!! Unknown header type",
)


@dataclass(frozen=True, slots=True)
class AcsBridge:
    """A bridge; `flags` as printed after ACSCtl, None if the bridge has no ACS capability or lspci shows none."""

    address: str
    bus_id: str
    name: str
    acs_enabled: bool | None
    flags: str | None
    unavailable: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class PciLink:
    """The link of one PCIe device or port; `kind` is its class, as printed."""

    address: str
    bus_id: str
    kind: str
    name: str
    speed_gt_s: float | None = None
    speed_max_gt_s: float | None = None
    width: int | None = None
    width_max: int | None = None
    unavailable: Mapping[str, str] = field(default_factory=dict)
    max_read_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class LspciAcs:
    """All of one machine, in lspci's order; `links` is None if it denied the capabilities of every device.

    `gone` are devices that have fallen off the bus: each of their registers reads as ones. `devices` is all addresses.
    """

    bridges: tuple[AcsBridge, ...]
    links: tuple[PciLink, ...] | None
    unavailable: Mapping[str, str]
    gone: tuple[PciLink, ...] = ()
    devices: tuple[str, ...] = ()


@dataclass(slots=True)
class _Device:
    address: str
    kind: str
    name: str
    is_denied: bool = False
    is_detailed: bool = False
    is_gone: bool = False
    flags: str | None = None
    values: dict[str, Any] = field(default_factory=dict)
    unavailable: dict[str, str] = field(default_factory=dict)
    bridge: AcsBridge | None = None
    link: PciLink | None = None


def parse_lspci_acs(text: str) -> LspciAcs:
    """Read the output; raise ParseError for no device, no detail (`lspci` without -vvv), or a line that is cut."""
    text = plain(text)
    devices = _devices(text)
    if not devices:
        raise foreign(TOOL, lines_of(text, TOOL), "no PCI device")
    if not any(device.is_detailed for device in devices):
        raise ParseError(f"{TOOL}: no device's details: `lspci -vvv` prints them")
    denied = all(device.is_denied or not device.values for device in devices) and any(d.is_denied for d in devices)
    return LspciAcs(
        bridges=tuple(bridge for device in devices if (bridge := device.bridge) is not None),
        links=None if denied else tuple(link for device in devices if (link := device.link) is not None),
        unavailable={"links": _DENIED} if denied else {},
        gone=tuple(
            PciLink(device.address, _bus_id(device), device.kind, device.name) for device in devices if _is_gone(device)
        ),
        devices=tuple(map(_bus_id, devices)),
    )


def _is_gone(device: _Device) -> bool:
    return device.is_gone or "(rev ff)" in device.name


def _devices(text: str) -> list[_Device]:
    devices: list[_Device] = []
    for number, line in enumerate(text.split("\n"), start=1):
        if line[:1] in _INDENTS:
            # of ten thousand lines a few hundred: no other becomes a Line
            if devices and line.lstrip().startswith(_DETAILS):
                _detail(Line(number, line), devices[-1])
                devices[-1].is_detailed = True
        elif device := _device(Line(number, line)):
            devices.append(device)
    for device in devices:
        device.bridge, device.link = _bridge(device), _link_of(device)
    return devices


def _device(line: Line) -> _Device | None:
    match = _DEVICE.match(line.text)
    if match is None:
        if _BEGINS_AS_DEVICE.match(line.text):
            raise unreadable(TOOL, line, "a device without its class and name")
        return None
    return _Device(match["address"], match["kind"], _PROGRAMMING.sub("", match["name"]).strip())


def _detail(line: Line, device: _Device) -> None:
    text = line.text.strip()
    if text.startswith("Lnk"):
        if read := _link(text):
            _put_link(device, read)
        else:
            raise unreadable(TOOL, line, "a link without its speed and width")
    elif text.startswith("ACSCtl:"):
        match = _ACS.match(text)
        if match is None or not _FLAGS.fullmatch(match["flags"]):
            raise unreadable(TOOL, line, "ACS flags that are cut")
        device.flags = " ".join(match["flags"].split())
    elif text.startswith("MaxPayload "):
        if match := _READ_REQUEST.search(text):
            device.values["max_read_bytes"] = int(match[1])
    elif text.startswith("!!!"):
        device.is_gone = True
    elif text == f"Capabilities: {_DENIED}":
        device.is_denied = True


# what a link's line says: its values, and those of its words that are no value
_Link = tuple[dict[str, Any], dict[str, str]]


@lru_cache(maxsize=1024)
def _link(text: str) -> _Link | None:
    """Return a link's values; None where speed and width are not there."""
    match = _LINK.match(text)
    trained = _TRAINED.match(match["rest"]) if match else None
    if match is None or trained is None:
        return None
    suffix = "_max" if match["which"] == "Cap" else ""
    speed, width = f"speed{suffix}_gt_s", f"width{suffix}"
    values = {
        speed: real(trained["speed"].removesuffix("GT/s")),
        width: whole(trained["width"].removeprefix("x")),
    }
    printed = {speed: trained["speed"], width: trained["width"]}
    return values, {key: word for key, word in printed.items() if "unknown" in word}


def _put_link(device: _Device, read: _Link) -> None:
    values, unavailable = read
    device.values |= values
    device.unavailable |= unavailable


def _bridge(device: _Device) -> AcsBridge | None:
    if not device.kind.startswith("PCI bridge"):
        return None  # host, ISA, and NVIDIA's switches (`Bridge`): nothing passes through them by ACS
    enabled = None if device.flags is None else "+" in device.flags
    refused = {"acs_enabled": _DENIED} if device.is_denied else {}
    return AcsBridge(device.address, _bus_id(device), device.name, enabled, device.flags, refused)


def _link_of(device: _Device) -> PciLink | None:
    if not device.values.keys() - {"max_read_bytes"}:
        return None  # a device with only a read request has no link to be compared
    return PciLink(
        address=device.address,
        bus_id=_bus_id(device),
        kind=device.kind,
        name=device.name,
        **device.values,
        unavailable=device.unavailable,
    )


def _bus_id(device: _Device) -> str:
    return bus_id(device.address) or device.address
