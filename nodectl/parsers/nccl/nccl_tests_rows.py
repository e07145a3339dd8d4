"""The table of nccl-tests: which line is a row, and what its columns are, by the header where one is shown."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from nodectl.parsers.numbers import real, whole
from nodectl.parsers.text import Line, unreadable

_TYPE = re.compile(r"u?int(?:8|32|64)|half|float|double|bfloat16|(?:f8|fp8)\w{0,8}|float8\w{0,8}|char|bf16|fp16|fp32")
_SIDE = ("time", "algbw", "busbw")
_SIDES = ("out-of-place", "in-place")
_JUDGED = ("#wrong", "wrong", "error")
_NO_VALUE = re.compile(r"N/A|-?nan(?:\(\w{0,8}\))?|[+-]?inf", re.IGNORECASE)
_DIGITS = re.compile(r"\d{1,18}")
_LONGEST_ROW = 2000


@dataclass(frozen=True, slots=True)
class NcclTestsSide:
    """One of the two measurements of a row; `max_error` is what programs before 2022 print instead of `wrong`."""

    time_us: float | None
    algbw_gb_s: float | None
    busbw_gb_s: float | None
    wrong: int | None
    max_error: float | None
    unavailable: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class NcclTestsRow:
    """One size; `redop` and `root` are None where the program prints none."""

    size_bytes: int
    count: int
    type: str
    redop: str | None
    root: int | None
    out_of_place: NcclTestsSide | None
    in_place: NcclTestsSide | None


def columns_of(text: str) -> tuple[str, ...] | None:
    """The names in the table's header; None for every other line."""
    if "algbw" not in text or "size" not in text:
        return None
    names = tuple(text.lstrip("# ").split())
    return names if names[:1] == ("size",) and "time" in names else None


def sides_of(text: str) -> tuple[str, ...]:
    """What the line above the header names, in its order; empty for every other line."""
    words = text.lstrip("# ").split()
    return tuple(words) if words and set(words) <= set(_SIDES) and len(words) <= len(_SIDES) else ()


def is_row(text: str, *, in_table: bool) -> bool:
    """It begins as a row does: what follows must then be one."""
    if not text[:1].isdigit() or len(text) > _LONGEST_ROW:
        return False
    words = text.split()
    if len(words) > 2 and _TYPE.fullmatch(words[2]):
        return True
    numbers = sum(real(word) is not None for word in words)
    return in_table and words[0].isdigit() and (numbers == len(words) or numbers >= 5)


def row_of(tool: str, line: Line, columns: tuple[str, ...] | None, order: tuple[str, ...] = _SIDES) -> NcclTestsRow:
    """ParseError where a column is missing or no value; `order` is what `sides_of` found above the header."""
    # an asterisk marks an error beyond the threshold
    words = [word for each in line.text.split() if (word := each.rstrip("*"))]
    side = _side_columns(columns)
    sides = 2 if columns is None or columns.count("time") == 2 else 1
    if len(words) < 3 + sides * len(side):
        raise unreadable(tool, line, "a row that is cut")
    head, tail = words[: len(words) - sides * len(side)], words[len(words) - sides * len(side) :]
    size, count, kind, operation, root = _head(tool, line, head, has_root="root" in (columns or ()))
    judged = _judged(columns, side, tail)
    measured = [_side(tool, line, tail[i * len(side) : (i + 1) * len(side)], side, judged) for i in range(sides)]
    named = dict(zip(order if len(order) == sides else _SIDES, measured, strict=False))
    return NcclTestsRow(size, count, kind, operation, root, *(named.get(name) for name in _SIDES))


def _side_columns(columns: tuple[str, ...] | None) -> tuple[str, ...]:
    if columns is None:
        return (*_SIDE, "#wrong")
    first = columns.index("time")
    rest = columns[first + 1 :]
    return ("time", *(rest[: rest.index("time")] if "time" in rest else rest))


def _head(tool: str, line: Line, head: list[str], *, has_root: bool) -> tuple[int, int, str, str | None, int | None]:
    numbers = [whole(word) for word in head[:2]]
    if len(head) > 5 or len(head) < 3 or numbers[0] is None or numbers[1] is None or not _TYPE.fullmatch(head[2]):
        raise unreadable(tool, line, "a row without size, count and type")
    if has_root and whole(head[-1]) is None:
        raise unreadable(tool, line, "a row without its root, or cut")
    operation, root = None, None
    for word in head[3:]:
        if whole(word) is not None and root is None:
            root = whole(word)
        elif operation is None and re.fullmatch(r"[A-Za-z]\w{0,24}", word):
            operation = word
        else:
            raise unreadable(tool, line, f"{word[:40]!r} is neither an operation nor a root")
    return numbers[0], numbers[1], head[2], operation, root


def _judged(columns: tuple[str, ...] | None, side: tuple[str, ...], tail: list[str]) -> str:
    """Whether the last column counts wrong values or gives the largest error; without a header, by how it looks."""
    if columns is not None:
        return "max_error" if "error" in side else "wrong"
    looks = [word for word in (tail[3], tail[7]) if not _NO_VALUE.fullmatch(word)]
    return "max_error" if any(not _DIGITS.fullmatch(word) for word in looks) else "wrong"


def _side(tool: str, line: Line, words: list[str], names: tuple[str, ...], judged: str) -> NcclTestsSide:
    keys = {"time": "time_us", "algbw": "algbw_gb_s", "busbw": "busbw_gb_s"}
    values: dict[str, float | None] = {}
    unavailable: dict[str, str] = {}
    for name, word in zip(names, words, strict=True):
        key = judged if name in _JUDGED else keys.get(name)
        if key is None:
            continue  # the spread over iterations, in programs of 2026
        value = values[key] = real(word)
        if value is None or value < 0:
            if name == "time" or value is not None or not _NO_VALUE.fullmatch(word):
                raise unreadable(tool, line, f"{word[:40]!r} is no value of {name}")
            unavailable[key] = word
    if not values.get("time_us") and values.get("algbw_gb_s"):
        raise unreadable(tool, line, "a bandwidth in no time: a column is missing")
    wrong = values.get("wrong")
    return NcclTestsSide(
        time_us=values.get("time_us"),
        algbw_gb_s=values.get("algbw_gb_s"),
        busbw_gb_s=values.get("busbw_gb_s"),
        wrong=None if wrong is None else int(wrong),
        max_error=values.get("max_error"),
        unavailable=unavailable,
    )
