"""Reads `ibstatus`, which shows what the kernel says of each InfiniBand and RoCE port."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from nodectl.parsers.rdma.labelled import Block, is_cut_label, labelled, nothing_found, rows_of
from nodectl.parsers.text import unreadable

TOOL = "ibstatus"
_PORT = re.compile(r"\s*Infiniband device '([^']+)' port (\d{1,3}) status:\s*")
# a state's number without its name, a GID of fewer than eight groups
_CUT_VALUE = re.compile(
    r"\s*(?:(?:phys )?state:\s*\d{1,3}|default gid:\s*(?!.*::)(?=.{0,38}$)[0-9a-f]{1,4}(?::[0-9a-f]{0,4}){0,7})\s*"
)
_FIRST = "default gid"  # of each port
_LABELS = (_FIRST, "base lid", "sm lid", "state", "phys state", "rate", "link_layer")
_LABEL = re.compile(rf"\s*({'|'.join(_LABELS)}):(.*)")
_STATES = ("DOWN", "INIT", "ARMED", "ACTIVE", "ACTIVE_DEFER", "NOP")
_PHYSICAL_STATES = (
    *("Sleep", "Polling", "Disabled", "PortConfigurationTraining", "LinkUp", "LinkErrorRecovery", "Phy Test"),
    "<unknown>",
)
_RATE = r"(\d+(?:\.\d+)?) Gb/sec(?: \([^)]*\))?"
_FAILURE = re.compile(r"Fatal error:|[Cc]ommand not found")


@dataclass(frozen=True, slots=True)
class PortStatus:
    """One port; `rate_text` names the lanes and their speed, on Ethernet by InfiniBand's name for it."""

    device: str
    port: int
    state: str | None = labelled(Block.text, "state", _STATES)
    physical_state: str | None = labelled(Block.text, "phys state", _PHYSICAL_STATES)
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
    """ParseError without a port, with the tool's reason, and for a row that is cut."""
    lines = list(rows_of(text, TOOL))
    ports: list[tuple[str, int, Block]] = []
    for line in lines:
        if match := _PORT.fullmatch(line.text):
            ports.append((match[1], int(match[2]), Block(TOOL)))
        elif line.text.lstrip().startswith("Infiniband device '"):
            raise unreadable(TOOL, line, "the port's name is cut")
        elif (match := _LABEL.fullmatch(line.text)) and match[1] == _FIRST and (not ports or _FIRST in ports[-1][2]):
            raise unreadable(TOOL, line, "the line with the name of its port is cut or garbled")
        elif ports and match:
            if not match[2].strip() or _CUT_VALUE.fullmatch(match[0]):
                raise unreadable(TOOL, line, "the row is cut")
            ports[-1][2].put(match[1], line, _without_code(match[1], match[2]))
        elif ports and is_cut_label(line.text, _LABELS):
            raise unreadable(TOOL, line, "the row is cut")
    if not ports:
        raise nothing_found(TOOL, "port", lines, _FAILURE)
    return Ibstatus(tuple(block.read(PortStatus, device=device, port=port) for device, port, block in ports))


def _without_code(label: str, value: str) -> str:
    """Return a state without its number: `4: ACTIVE` is `ACTIVE`."""
    return re.sub(r"^\s*\d+:(?: |$)", "", value) if label in ("state", "phys state") else value
