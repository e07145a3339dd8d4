"""Reads a tool's JSON document, found among log lines in time linear in the text, as typed values."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from nodectl.errors import ParseError
from nodectl.facts.parsers.text import Line, lines_of, plain, unreadable

_OPENS = re.compile(r"[{\[]")
# NaN and Infinity are no JSON; a tool that prints them says that it has no such number
_DECODER = json.JSONDecoder(parse_constant=lambda _: None)
_MOST_ATTEMPTS = 2000


def json_document(text: str, tool: str, is_wanted: Callable[[Any], bool]) -> Any:
    """Return the first document that `is_wanted`.

    ParseError with the line where the JSON breaks off, or if there is none.
    """
    first = next(line for line in lines_of(text, tool) if line.text.strip())
    text = plain(text)
    failure: ParseError | None = None
    for document in _documents(text, tool):
        if isinstance(document, ParseError):
            failure = failure or document
        elif is_wanted(document):
            return document
    raise failure or unreadable(tool, first, "no JSON document of this tool")


def find_document(text: str, tool: str, is_wanted: Callable[[Any], bool]) -> Any:
    """Return the document as `json_document` does; None if there is none, or it is cut."""
    documents = _documents(plain(text), tool)
    return next(
        (document for document in documents if not isinstance(document, ParseError) and is_wanted(document)), None
    )


def _documents(text: str, tool: str) -> Iterator[Any]:
    position = 0
    for _ in range(_MOST_ATTEMPTS):
        opening = _OPENS.search(text, position)
        if opening is None:
            return
        try:
            document, position = _DECODER.raw_decode(text, opening.start())
        except json.JSONDecodeError as error:
            yield unreadable(tool, _line_at(text, error.pos), f"{error.msg} (column {error.colno})")
            position = max(error.pos, opening.end())
        except (ValueError, RecursionError) as error:
            # a number of thousands of digits, or thousands of brackets: no tool prints these
            yield unreadable(tool, _line_at(text, opening.start()), str(error))
            return
        else:
            yield document


def _line_at(text: str, position: int) -> Line:
    position = min(position, len(text.rstrip()) - 1)
    start, end = text.rfind("\n", 0, position) + 1, text.find("\n", position)
    return Line(text.count("\n", 0, start) + 1, text[start : end if end >= 0 else None].strip())


def section(part: Mapping[str, Any], key: str, tool: str) -> Mapping[str, Any]:
    """Return the object under `key`, empty if there is none; ParseError if it is something else."""
    return _checked(part, key, tool, lambda value: isinstance(value, dict), "an object") or {}


def objects(part: Mapping[str, Any], key: str, tool: str) -> list[Mapping[str, Any]]:
    """Return the list of objects under `key`, empty if there is none; ParseError if it is something else."""
    return _checked(part, key, tool, _are_objects, "a list of objects") or []


def number(part: Mapping[str, Any], key: str, tool: str, wanted: str = "a number") -> float | None:
    """Return the finite number under `key`, None if there is none."""
    value = _checked(part, key, tool, _is_finite, wanted)
    return None if value is None else float(value)


def whole(part: Mapping[str, Any], key: str, tool: str) -> int | None:
    """Return the whole number under `key`, None if there is none."""
    wanted = "a whole number"
    number(part, key, tool, wanted)
    value = _checked(part, key, tool, lambda value: float(value).is_integer(), wanted)
    return None if value is None else int(value)


def text_of(part: Mapping[str, Any], key: str, tool: str) -> str | None:
    """Return the string under `key`, None if there is none."""
    value: str | None = _checked(part, key, tool, lambda value: isinstance(value, str), "a string")
    return value


def _checked(part: Mapping[str, Any], key: str, tool: str, is_wanted: Callable[[Any], bool], wanted: str) -> Any:
    """Return the value under `key`, None if there is none; ParseError unless it `is_wanted`."""
    value = part.get(key)
    if value is None or is_wanted(value):
        return value
    raise ParseError(f"{tool}: {key!r} is {str(value)[:80]!r}, not {wanted}")


def _are_objects(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, dict) for item in value)


def _is_finite(value: Any) -> bool:
    try:
        return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    except OverflowError:
        return False
