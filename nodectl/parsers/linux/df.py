"""Reads `df -kP`."""

import re
from dataclasses import dataclass

from nodectl.errors import ParseError

# names may hold spaces; the numbers between them do not
_ROW = re.compile(r"(?P<device>.+?)\s+(?P<size>\d+)\s+\d+\s+(?P<free>-?\d+)\s+(?:\d+%|-)\s+(?P<mount>/.*)")


@dataclass(frozen=True, slots=True)
class FileSystem:
    """One row: `free_mib` is what a normal user may still write."""

    device: str
    mount: str
    size_mib: int
    free_mib: int


def parse_df(text: str) -> tuple[FileSystem, ...]:
    """The rows in df's order, which is that of its arguments; ParseError for a row that is none."""
    rows = []
    for number, line in enumerate(text.splitlines()[1:], start=2):
        match = _ROW.fullmatch(line)
        if match is None:
            raise ParseError(f"df line {number}: {line!r}")
        size_mib, free_mib = int(match["size"]) // 1024, int(match["free"]) // 1024
        rows.append(FileSystem(match["device"], match["mount"], size_mib, free_mib))
    if not rows:
        raise ParseError("df shows no file system")
    return tuple(rows)
