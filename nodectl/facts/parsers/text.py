"""What all parsers share: lines without terminal noise, numbers, refused values, and errors that name the line."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from functools import partial
from typing import NamedTuple

from nodectl.errors import ParseError

_ESCAPES = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]"  # CSI: colours, cursor
    r"|\][^\x07\x1b]*(?:\x07|\x1b\\)?"  # OSC: titles, links
    r"|[@-Z\\-_])"
)
_CONTROLS = bytes({*range(0x20), 0x7F} - set(b"\t\n\r"))
# mpirun --tag-output, mpirun -timestamp-output
RANK_TAG = re.compile(
    r"^(?:\[(?:[^\s\]@]{1,200}@)?\d+,\d+\]<std(?:out|err)>:? ?"
    r"|\w{3} \w{3} [ \d]\d [\d:]{8} \d{4}<std(?:out|err)>: ?)"
)
_BUS_ID = re.compile(r"(?:([0-9a-fA-F]{4,8}):)?([0-9a-fA-F]{2}):([0-9a-fA-F]{2})\.([0-7])")
_WHOLE = re.compile(r"[+-]?[0-9]{1,18}")
_REAL = re.compile(r"[+-]?(?:[0-9]{1,40}(?:\.[0-9]{0,40})?|\.[0-9]{1,40})(?:[eE][+-]?[0-9]{1,4})?")
_SHOWN_CHARS = 200
_LONGEST_LINE = 20_000


class Line(NamedTuple):
    """One line of a tool's output: its number, from 1, and its text without escapes and line ends."""

    number: int
    text: str


_LINE = partial(tuple.__new__, Line)


# what is left of a text whose every line is longer than a tool's
_OVERLONG = Line(1, "one overlong line")


def plain(text: str) -> str:
    """Return the text without ANSI escapes and control characters, and of a redrawn line the last state."""
    text = text.removeprefix("\ufeff")
    if "\x1b" in text:
        text = _ESCAPES.sub("", text)
    if "\r" in text:
        # split, not a pattern: one long line without a return would be searched from each of its characters
        text = "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in text.split("\n"))
    # in UTF-8 no longer character holds these bytes, and bytes are searched some twenty times as fast
    return text.encode("utf-8", "surrogatepass").translate(None, _CONTROLS).decode("utf-8", "surrogatepass")


def lines_with(text: str, terms: Iterable[str]) -> list[Line]:
    """Return the lines of a `plain` text with one of the words, numbered as printed; for long logs."""
    ends: dict[int, int] = {}
    for term in terms:
        position = text.find(term)
        while position >= 0:
            end = text.find("\n", position)
            end = len(text) if end < 0 else end
            ends[text.rfind("\n", 0, position) + 1] = end
            position = text.find(term, end)
    lines, number, before = [], 1, 0
    for start in sorted(ends):
        number += text.count("\n", before, start)
        before = start
        lines.append(Line(number, text[start : ends[start]]))
    return lines


def lines_of(text: str, tool: str) -> list[Line]:
    """All lines, numbered as printed; ParseError if there is nothing but space."""
    printed = plain(text)
    if not printed.strip():
        raise ParseError(f"{tool}: the output is empty")
    # as Line(number, text), and four times as fast: there are thousands of them a host
    return list(map(_LINE, enumerate(printed.split("\n"), start=1)))


def readable(lines: Iterable[Line]) -> Iterator[Line]:
    """Lines that a tool for people can have printed: one of megabytes is noise, and dear to search."""
    return (line for line in lines if len(line.text) <= _LONGEST_LINE)


def untagged(lines: list[Line]) -> Iterator[Line]:
    """Lines without the rank that mpirun puts before them."""
    for line in lines:
        text = line[1]
        if len(text) <= _LONGEST_LINE:
            yield Line(line.number, RANK_TAG.sub("", text)) if "<std" in text else line


def unreadable(tool: str, line: Line, why: str) -> ParseError:
    """Return the error for one line: which, what it says, and why that cannot be read."""
    return ParseError(f"{tool}: line {line.number}: {_shown(line.text)!r}: {_shown(why)}")


def foreign(tool: str, lines: Iterable[Line], why: str, failure: re.Pattern[str] | None = None) -> ParseError:
    """Return the error for text that is not this tool's: what is missing, and a line of `failure`, else the first."""
    written = [line for line in lines if line.text.strip()]
    reasons = (line for line in written if failure and failure.search(line.text))
    return unreadable(tool, next(reasons, written[0] if written else _OVERLONG), why)


def _shown(text: str) -> str:
    return text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}…"


def whole(text: str) -> int | None:
    """Return an integer; None for any other text, as a run of ten thousand digits is."""
    return int(text) if _WHOLE.fullmatch(text) else None


def real(text: str) -> float | None:
    """Return a finite number; None for any other text, as `nan` and `1e999` are."""
    if not _REAL.fullmatch(text):
        return None
    value = float(text)
    return value if math.isfinite(value) else None


def bus_id(text: str) -> str | None:
    """Return `00000000:0f:00.0`, `0f:00.0` → `0000:0F:00.0`; None if it is no PCI address."""
    match = _BUS_ID.fullmatch(text.strip())
    if match is None:
        return None
    domain = f"{int(match[1] or '0', 16):04X}"
    return f"{domain}:{match[2]}:{match[3]}.{match[4]}".upper()
