"""Reads `label: value` blocks, the form in which the InfiniBand tools print a device or a port."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import field, fields
from functools import cache
from typing import Any, TypeVar

from nodectl.facts.parsers.text import Line, lines_of, unreadable, untagged

# longer lines are no tool's rows, and keep patterns from walking over megabytes
_LONGEST_ROW = 4096
_WHOLE = re.compile(r"-?\d{1,20}|0[xX][0-9a-fA-F]{1,16}")
_NUMBER = re.compile(r"(-?\d{1,20}(?:\.\d{1,20})?)(?: \(\w{1,20}\))?")
_GUID = re.compile(r"(?:0x)?([0-9a-fA-F:]*)")
_GUID_DIGITS = 16
_NOT_GIVEN = ("N/A", "Not Supported", "invalid ", "unknown")
T = TypeVar("T")
LINK_LAYERS = ("InfiniBand", "Ethernet", "Unspecified", "Unknown", "IB")


def rows_of(text: str, tool: str) -> Iterator[Line]:
    """Lines that can be rows: without terminal noise and rank tags; ParseError if the output is empty."""
    return (line for line in untagged(lines_of(text, tool)) if len(line.text) <= _LONGEST_ROW)


def first_match(lines: Iterable[Line], pattern: re.Pattern[str]) -> str | None:
    """Return the first line in which `pattern` is found, without the space around it."""
    return next((line.text.strip() for line in lines if pattern.search(line.text)), None)


def labelled(read: Callable[..., object], label: str, *arguments: object) -> Any:
    """Return a dataclass's field that `read`, a method of Block, takes from the row of this label."""
    return field(default=None, metadata={"row": (read, label, *arguments)})


@cache
def _rows_of(kind: Any) -> dict[str, tuple[Callable[..., object], tuple[object, ...]]]:
    rows = {item.name: item.metadata["row"] for item in fields(kind) if "row" in item.metadata}
    return {name: (read, tuple(arguments)) for name, (read, *arguments) in rows.items()}


class Block:
    """The labels of one device or port; a value that the tool refuses is None and stands in `unavailable`."""

    def __init__(self, tool: str) -> None:
        self.unavailable: dict[str, str] = {}
        self._tool = tool
        self._rows: dict[str, tuple[Line, str]] = {}

    def put(self, label: str, line: Line, value: str) -> None:
        """Put the value of a label; one that comes again belongs to a part of the block that is not read."""
        self._rows.setdefault(label, (line, value.strip()))

    def __contains__(self, label: str) -> bool:
        return label in self._rows

    def read(self, kind: Callable[..., T], **given: object) -> T:
        """Return the dataclass `kind` with its `labelled` fields, what the caller gives, and what the tool refused."""
        return kind(**given, **self.values(kind), unavailable=self.unavailable)

    def values(self, kind: object) -> dict[str, Any]:
        """Return the `labelled` fields of the dataclass `kind` by their names."""
        return {name: read(self, name, *arguments) for name, (read, arguments) in _rows_of(kind).items()}

    def text(self, name: str, label: str, vocabulary: tuple[str, ...] = ()) -> str | None:
        """Return the text as printed, None where blank; half a word of a `vocabulary` is a row that was cut."""
        row = self._row(name, label)
        if row is None or not (row[1] or vocabulary):
            return None
        line, value = row
        if value not in vocabulary and any(word.startswith(value) for word in vocabulary):
            raise unreadable(self._tool, line, "the row is cut")
        return value

    def guid(self, name: str, label: str) -> str | None:
        """Return the GUID as printed, masked ones too; ParseError where digits are missing."""
        row = self._row(name, label)
        if row is None:
            return None
        match = _GUID.fullmatch(row[1])
        if match and len(match[1].replace(":", "")) != _GUID_DIGITS:
            raise unreadable(self._tool, row[0], f"a GUID has {_GUID_DIGITS} digits")
        return row[1]

    def whole(self, name: str, label: str) -> int | None:
        """Return a whole number, hexadecimal after 0x; ParseError for other text."""
        row = self._row(name, label)
        if row and not _WHOLE.fullmatch(row[1]):
            raise unreadable(self._tool, row[0], f"{row[1]!r} is no whole number")
        return int(row[1], 16 if row[1][:2] in ("0x", "0X") else 10) if row else None

    def number(self, name: str, label: str) -> float | None:
        """Return a decimal number, without a note in brackets behind it; ParseError for other text."""
        row = self._row(name, label)
        match = _NUMBER.fullmatch(row[1]) if row else None
        if row and not match:
            raise unreadable(self._tool, row[0], f"{row[1]!r} is no number")
        return float(match[1]) if match else None

    def _row(self, name: str, label: str) -> tuple[Line, str] | None:
        row = self._rows.get(label)
        if row is not None and row[1].startswith(_NOT_GIVEN):
            self.unavailable[name] = row[1]
            return None
        return row


def is_cut_label(text: str, labels: Iterable[str]) -> bool:
    """Return whether the text is the beginning of a label, without its colon."""
    text = text.strip()
    return len(text) > 1 and ":" not in text and any(label.startswith(text) for label in labels)
