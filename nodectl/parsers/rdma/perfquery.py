"""Reads `perfquery`, with and without -x: the counters of one port or of several."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from nodectl.parsers.rdma.labelled import nothing_found, rows_of
from nodectl.parsers.text import Line, unreadable

TOOL = "perfquery"
_BLOCK = re.compile(r"\s*# (\w[\w ]*) counters: (.*?) ?port (\d{1,3})\b.*")
_BLOCK_START = re.compile(r"\s*# \w[\w ]* counters\b")
_LID = re.compile(r"\bLid (\d{1,6})\b")
_COUNTER = re.compile(r"\s*([A-Za-z]\w*):\.*\s*(\d{1,20}|0[xX][0-9a-fA-F]{1,16})\s*")
_COUNTER_START = re.compile(
    r"\s*[A-Za-z]\w*:?\.{2,}.*|\s*(?:Port|Counter|Symbol|Link|Excessive|Local|VL15|QP1)\w*:?\s*"
)
_FAILURE = re.compile(r"iberror:|ibpanic:|ibwarn:|[Cc]ommand not found")


@dataclass(frozen=True, slots=True)
class PortCounters:
    """One block; `lid` is None where the port was asked for by its route."""

    lid: int | None
    port: int
    kind: str
    counters: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Perfquery:
    """The blocks in the order printed."""

    ports: tuple[PortCounters, ...]


def parse_perfquery(text: str) -> Perfquery:
    """ParseError without a block, with the tool's reason, and for a row that is cut."""
    lines = list(rows_of(text, TOOL))
    blocks: list[tuple[re.Match[str], dict[str, int]]] = []
    for line in lines:
        if match := _BLOCK.fullmatch(line.text):
            blocks.append((match, {}))
        elif _BLOCK_START.match(line.text):
            raise unreadable(TOOL, line, "the block's port is missing")
        elif blocks:
            _count(blocks[-1][1], line)
    if not blocks:
        raise nothing_found(TOOL, "counters", lines, _FAILURE)
    return Perfquery(tuple(_port(match, counters) for match, counters in blocks))


def _count(counters: dict[str, int], line: Line) -> None:
    match = _COUNTER.fullmatch(line.text)
    if match:
        counters[match[1]] = int(match[2], 16 if match[2][:2] in ("0x", "0X") else 10)
    elif _COUNTER_START.fullmatch(line.text):
        raise unreadable(TOOL, line, "the row has no count")


def _port(match: re.Match[str], counters: Mapping[str, int]) -> PortCounters:
    lid = _LID.search(match[2])
    return PortCounters(int(lid[1]) if lid else None, int(match[3]), match[1], counters)
