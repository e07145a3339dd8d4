"""Reads `show_gids`, the table of GIDs with the address, the RoCE version and the interface of each."""

from __future__ import annotations

import re
from dataclasses import dataclass

from nodectl.parsers.rdma.labelled import nothing_found, rows_of
from nodectl.parsers.text import Line, unreadable

TOOL = "show-gids"
_PROGRAM = "show_gids"
_HEADER = re.compile(r"\s*DEV\s+PORT\s+INDEX\s+GID\s+")
_COUNT = re.compile(r"\s*n_gids_found=\d+\s*")
_ROW = re.compile(r"\s*(\S+)\s+(\d{1,3})\s+(\d{1,5})\s+((?:[0-9a-fA-F]{4}:){7}[0-9a-fA-F]{4})(?:\s+(.*))?")
_ROW_START = re.compile(r"\s*[\w.-]+\s+\d+(?:\s+\d+(?:\s+[0-9a-fA-F:]+)?)?\s*")
_ADDRESS = re.compile(r"\d{1,3}(?:\.\d{1,3}){3}")
_FAILURE = re.compile(r"[Cc]ommand not found|No such file or directory")
_VERSION = re.compile(r"v\d(?:\.\d)?")


@dataclass(frozen=True, slots=True)
class Gid:
    """One entry; `version` and `netdev` are None on InfiniBand, `ipv4` where the GID holds no such address."""

    device: str
    port: int
    index: int
    gid: str
    ipv4: str | None
    version: str | None
    netdev: str | None


@dataclass(frozen=True, slots=True)
class ShowGids:
    """The entries in the order printed."""

    gids: tuple[Gid, ...]


def parse_show_gids(text: str) -> ShowGids:
    """ParseError without the table, and for a row that is cut or garbled."""
    gids: list[Gid] = []
    has_table = False
    lines = list(rows_of(text, _PROGRAM))
    for line in lines:
        if match := _ROW.fullmatch(line.text):
            gids.append(_gid(match, line, is_last=line is lines[-1]))
        elif _HEADER.match(line.text) or _COUNT.fullmatch(line.text):
            has_table = True
        elif has_table and _ROW_START.fullmatch(line.text):
            raise unreadable(_PROGRAM, line, "the row is cut or garbled")
    if not (has_table or gids):
        raise nothing_found(_PROGRAM, "table of GIDs", lines, _FAILURE)
    return ShowGids(tuple(gids))


def _gid(match: re.Match[str], line: Line, *, is_last: bool) -> Gid:
    words = (match[5] or "").split()
    ipv4 = words.pop(0) if words and _ADDRESS.fullmatch(words[0]) else None
    version = words.pop(0) if words and _VERSION.fullmatch(words[0]) else None
    netdev = words.pop(0) if words else None
    # the script prints a tab after the version, then the interface, which may be gone
    lacks_end = is_last and version is not None and netdev is None and line.text.endswith(version)
    if words or (netdev and not version) or (ipv4 and not version) or lacks_end:
        raise unreadable(_PROGRAM, line, "the row is cut or garbled")
    return Gid(match[1], int(match[2]), int(match[3]), match[4], ipv4, version, netdev)
