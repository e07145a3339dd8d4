"""Rows of nccl-tests that NCCL's own log lines tear: the program prints a row in parts, and NCCL logs between them."""

from __future__ import annotations

import re

from nodectl.parsers.text import Line, unreadable

_LOG = r"[\w.-]{1,255}:\d{1,10}:\d{1,10} \[-?\d{1,5}\] (?:\S{1,80} )?NCCL (?:INFO|WARN|TRACE|ABORT)\b"
_HEAD = re.compile(
    rf"\s*(?P<head>\d{{1,18}}\s+\d{{1,18}}\s+[a-z]\w{{1,20}}(?:\s+[a-z]\w{{0,24}})?(?:\s+(?:-1|\d{{1,9}}))?)\s*{_LOG}"
)
_VALUE = r"(?:\d[\d.e+-]{0,20}|N/A|-?nan|-?inf)"
_PART = re.compile(rf"\s*(?P<part>{_VALUE}(?:\s+{_VALUE}){{0,15}})\s*(?:{_LOG}.*)?")
_HEADLESS_COLUMNS = 8
_HEAD_COLUMNS = ("size", "count", "type", "redop", "root")


class TornRow:
    """Holds the part of a row that was printed, until the rest of it comes."""

    def __init__(self, tool: str) -> None:
        self._tool = tool
        self._line: Line | None = None
        self._parts: list[str] = []
        self._missing = 0

    def read(self, line: Line, columns: tuple[str, ...] | None) -> Line | None:
        """The line itself; None for a part of a torn row, and for its last part the row under its first number."""
        if "NCCL" in line.text and (head := _HEAD.match(line.text)):
            self.require_none()
            self._line, self._parts = line, [head["head"]]
            self._missing = _HEADLESS_COLUMNS if columns is None else sum(name not in _HEAD_COLUMNS for name in columns)
            return None
        if self._line is not None and (part := _PART.fullmatch(line.text)):
            self._parts.append(part["part"])
            self._missing -= len(part["part"].split())
            if self._missing <= 0:
                line, self._line = Line(self._line.number, " ".join(self._parts)), None
                return line
            return None
        return line

    def require_none(self) -> None:
        """ParseError where a row was begun and its rest did not come."""
        if self._line is not None:
            raise unreadable(self._tool, self._line, "a row that a log line cut off")
