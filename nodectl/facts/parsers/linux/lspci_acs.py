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
_DENIED = "<access denied>"
# `lspci -v` prints `Flags:` and no `Control:`, and nothing of links
_DETAILS = ("Control:", "LnkCap:", "LnkSta:", "ACSCtl:", f"Capabilities: {_DENIED}", "!!! Unknown header type")


@dataclass(frozen=True, slots=True)
class PcieBridge:
    """A bridge with access control; `redirects`: it sends traffic between devices through the root complex."""

    address: str
    name: str
    redirects: bool
    flags: str | None = None


@dataclass(frozen=True, slots=True)
class PcieLink:
    """How the link of one device or port was trained, and the best that it could; `kind` is its class, as printed."""

    address: str
    kind: str
    name: str
    speed_gt_s: float | None = None
    speed_max_gt_s: float | None = None
    width: int | None = None
    width_max: int | None = None
    unavailable: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LspciAcs:
    """All of one machine, in lspci's order; `links` is None if it denied the capabilities of every device.

    Addresses are `0000:0f:00.0`. `gone` are devices that have fallen off the bus: each of their registers reads as
    ones. `devices` is all addresses.
    """

    bridges: tuple[PcieBridge, ...]
    links: tuple[PcieLink, ...] | None
    unavailable: Mapping[str, str]
    gone: tuple[PcieLink, ...] = ()
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
        # host, ISA, and NVIDIA's switches (`Bridge`) are left out: nothing passes through them by ACS
        bridges=tuple(
            PcieBridge(device.address, device.name, "+" in device.flags, device.flags)
            for device in devices
            if device.flags is not None and device.kind.startswith("PCI bridge")
        ),
        links=None
        if denied
        else tuple(
            PcieLink(device.address, device.kind, device.name, **device.values, unavailable=device.unavailable)
            for device in devices
            if device.values
        ),
        unavailable={"links": _DENIED} if denied else {},
        gone=tuple(
            PcieLink(device.address, device.kind, device.name)
            for device in devices
            if device.is_gone or "(rev ff)" in device.name
        ),
        devices=tuple(device.address for device in devices),
    )


def _devices(text: str) -> list[_Device]:
    devices: list[_Device] = []
    for number, line in enumerate(text.split("\n"), start=1):
        if line[:1] in ("\t", " "):
            # of ten thousand lines a few hundred: no other becomes a Line
            if devices and line.lstrip().startswith(_DETAILS):
                _detail(Line(number, line), devices[-1])
                devices[-1].is_detailed = True
        elif match := _DEVICE.match(line):
            address = (bus_id(match["address"]) or match["address"]).lower()
            devices.append(_Device(address, match["kind"], _PROGRAMMING.sub("", match["name"]).strip()))
        elif _BEGINS_AS_DEVICE.match(line):
            raise unreadable(TOOL, Line(number, line), "a device without its class and name")
    return devices


def _detail(line: Line, device: _Device) -> None:
    text = line.text.strip()
    if text.startswith("Lnk"):
        read = _link(text)
        if read is None:
            raise unreadable(TOOL, line, "a link without its speed and width")
        device.values |= read[0]
        device.unavailable |= read[1]
    elif text.startswith("ACSCtl:"):
        match = _ACS.match(text)
        if match is None or not _FLAGS.fullmatch(match["flags"]):
            raise unreadable(TOOL, line, "ACS flags that are cut")
        device.flags = " ".join(match["flags"].split())
    elif text.startswith("!!!"):
        device.is_gone = True
    elif text == f"Capabilities: {_DENIED}":
        device.is_denied = True


@lru_cache(maxsize=1024)
def _link(text: str) -> tuple[dict[str, Any], dict[str, str]] | None:
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
