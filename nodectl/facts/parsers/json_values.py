"""Reads a tool's JSON document, found among log lines in time linear in the text, as typed values."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from nodectl.errors import ParseError
from nodectl.facts.parsers.text import Line, lines_of, plain, unreadable

_OPENS = re.compile(r"[{\[]")
# NaN and Infinity are no JSON; a tool that prints them says that it has no such number
_DECODER = json.JSONDecoder(parse_constant=lambda _: None)
_MOST_ATTEMPTS = 2000
_LARGEST = 1e300


def json_document(text: str, tool: str, is_wanted: Callable[[Any], bool]) -> Any:
    """Return the first document that `is_wanted`; ParseError with the line where it breaks off, or if none is."""
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
    try:
        return json_document(text, tool, is_wanted)
    except ParseError:
        return None


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


_KINDS = {dict: "an object", list: "a list of objects", float: "a number", int: "a whole number", str: "a string"}


def value_at(document: Mapping[str, Any], path: str, kind: type, tool: str) -> Any:
    """Return the value at a path as `end/sum_sent/seconds`, None if there is none; ParseError for another kind."""
    *above, key = path.split("/")
    for name in above:
        document = _of_kind(document.get(name), dict, name, tool) or {}
    return _of_kind(document.get(key), kind, key, tool)


def _of_kind(value: Any, kind: type, key: str, tool: str) -> Any:
    if value is None:
        return None
    # a number of JSON may be 1e999, or have thousands of digits
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < _LARGEST
    fits = {
        float: is_number,
        int: is_number and float(value).is_integer(),
        list: isinstance(value, list) and all(isinstance(item, dict) for item in value),
    }
    if not fits.get(kind, isinstance(value, kind)):
        raise ParseError(f"{tool}: {key!r} is {str(value)[:80]!r}, not {_KINDS[kind]}")
    return kind(value) if is_number else value
