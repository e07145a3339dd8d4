"""Reads `rdma link`: the state of RDMA ports and their network interfaces."""

from __future__ import annotations

import re
from dataclasses import dataclass

from nodectl.facts.parsers.rdma.labelled import rows_of
from nodectl.facts.parsers.text import Line, foreign, unreadable

TOOL = "rdma-link"
_PROGRAM = "rdma link"
# iproute2 before 4.19 numbered the links: `1/1: mlx5_0/1: state ACTIVE …`
_LINK = re.compile(r"\s*(?:link |\d+/\d+: )(\S+?)/(\d{1,3}):?(?: (.*))?")
# a row that is cut behind its name, and the rest of one whose beginning is cut or garbled
_CUT = re.compile(r"\s*(?:link\s+\S+|\d+/\d+: \S+/\S+)\s*|.*\bstate [A-Z_]+ physical_state\b.*")
_STATES = ("NOP", "DOWN", "INIT", "ARMED", "ACTIVE", "ACTIVE_DEFER")
_PHYSICAL_STATES = (
    *("NOP", "SLEEP", "POLLING", "DISABLED", "PORT_CONFIGURATION_TRAINING", "LINK_UP", "LINK_ERROR_RECOVER"),
    *("LINK_ERROR_RECOVERY", "PHY_TEST"),
)
_WORDS = frozenset(
    ("state", "physical_state", "netdev", "netdev_index", "subnet_prefix", "lid", "sm_lid", "lmc", "ifindex")
)
_FAILURE = re.compile(r"[Cc]ommand not found|No such file")


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
    lines = list(rows_of(text, _PROGRAM))
    for line in lines:
        if match := _LINK.fullmatch(line.text):
            links.append(_link(match[1], int(match[2]), match[3] or "", line))
        elif _CUT.fullmatch(line.text):
            raise unreadable(_PROGRAM, line, "the row is cut or garbled")
    if not links:
        raise foreign(_PROGRAM, lines, "no row that begins with 'link'", _FAILURE)
    return RdmaLink(tuple(links))


def _link(device: str, port: int, rest: str, line: Line) -> RdmaPort:
    tokens = rest.split()
    values = dict(zip(tokens[::2], tokens[1::2], strict=False))
    if len(tokens) % 2 or not {"state", "physical_state"} <= values.keys() or not values.keys() <= _WORDS:
        raise unreadable(_PROGRAM, line, "the row is cut or garbled")
    for name, words_of_it in (("state", _STATES), ("physical_state", _PHYSICAL_STATES)):
        if values[name] not in words_of_it and any(state_name.startswith(values[name]) for state_name in words_of_it):
            raise unreadable(_PROGRAM, line, f"the {name} is cut")
    lid = values.get("lid")
    if lid is not None and not re.fullmatch(r"\d{1,9}", lid):
        raise unreadable(_PROGRAM, line, f"lid {lid!r} is no number")
    return RdmaPort(
        device, port, values["state"], values["physical_state"], values.get("netdev"), None if lid is None else int(lid)
    )
