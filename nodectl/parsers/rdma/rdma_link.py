"""Reads `rdma link`, as text or with -j."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from nodectl.errors import ParseError
from nodectl.parsers.json_values import json_document, text_of, whole
from nodectl.parsers.rdma.labelled import rows_of
from nodectl.parsers.text import Line, unreadable

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
    """ParseError without a link, and for a row that is cut."""
    links = []
    for line in rows_of(text, _PROGRAM):
        if match := _LINK.fullmatch(line.text):
            links.append(_link(match[1], int(match[2]), match[3] or "", line))
        elif _CUT.fullmatch(line.text):
            raise unreadable(_PROGRAM, line, "the row is cut or garbled")
    if links:
        return RdmaLink(tuple(links))
    try:
        rows = json_document(text, _PROGRAM, _is_links)
    except ParseError as error:
        raise ParseError(f"{error} (neither rows that begin with 'link' nor JSON)") from error
    return RdmaLink(tuple(_from_json(row) for row in rows))


def _link(device: str, port: int, rest: str, line: Line) -> RdmaPort:
    words = rest.split()
    values = dict(zip(words[::2], words[1::2], strict=False))
    if len(words) % 2 or not {"state", "physical_state"} <= values.keys() or not values.keys() <= _WORDS:
        raise unreadable(_PROGRAM, line, "the row is cut or garbled")
    for name, words_of_it in (("state", _STATES), ("physical_state", _PHYSICAL_STATES)):
        if values[name] not in words_of_it and any(known.startswith(values[name]) for known in words_of_it):
            raise unreadable(_PROGRAM, line, f"the {name} is cut")
    lid = values.get("lid")
    if lid is not None and not re.fullmatch(r"\d{1,9}", lid):
        raise unreadable(_PROGRAM, line, f"lid {lid!r} is no number")
    return RdmaPort(
        device, port, values["state"], values["physical_state"], values.get("netdev"), None if lid is None else int(lid)
    )


def _is_links(document: Any) -> bool:
    return isinstance(document, list) and all(
        isinstance(row, dict) and {"ifname", "port"} <= row.keys() for row in document
    )


def _from_json(row: Mapping[str, Any]) -> RdmaPort:
    names = [text_of(row, key, _PROGRAM) for key in ("ifname", "state", "physical_state")]
    port = whole(row, "port", _PROGRAM)
    if None in names or port is None:
        raise ParseError(f"{_PROGRAM}: {str(row)[:200]!r} lacks its name, port or state")
    device, state, physical_state = (name or "" for name in names)
    return RdmaPort(device, port, state, physical_state, text_of(row, "netdev", _PROGRAM), whole(row, "lid", _PROGRAM))
