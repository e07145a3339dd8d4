"""Which tools can be read: those that a module names as its TOOL; each parser is imported when it is used."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import nodectl.facts.parsers
from nodectl.errors import ParseError
from nodectl.facts.parsers.text import RANK_TAG, plain

_STAMP = re.compile(r"\[?\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?\]?:?(?: |$)")
# pdsh, clush, srun -l; docker compose, kubetail; a quotation
_NAME = re.compile(r"\s{0,4}[\w.@-]{1,64}: ?|[\w.@/-]{1,64} {0,20}\| ?|> ?")
# the other lines are those of the shell itself
_SHARE = 0.9
_MOST_LAYERS = 3
_FEWEST_LINES = 2
_LONGEST_PREFIX = 100
_MOST_CHARS = 32 * 2**20
# a line of JSON that is written over many
_JSON_LINE = re.compile(
    r'"(?:[^"\\]|\\.){0,400}"\s*(?::.*|,?)|[\[{}\]][\[{}\], ]*|[\[{] ?["{].*'
    r"|\[?(?:-?\d[\d.eE+-]{0,40}(?:, ?|$)){1,10000}\]?,?|(?:true|false|null),?"
)


def readings(text: str) -> Iterator[str]:
    """Other ways to read a text, of as many lines: without what stands before each line, without lines between JSON."""
    if len(text) > _MOST_CHARS:
        return
    text = plain(text)
    bare = _bare(text)
    if bare != text:
        yield bare
    if "{" in bare:
        written = "\n".join(_json_line(line) for line in bare.split("\n"))
        if written != bare:
            yield written


def _bare(text: str) -> str:
    lines = text.split("\n")
    for _ in range(_MOST_LAYERS):
        shorter = _without(lines)
        if shorter is None:
            break
        lines = shorter
    margin = min((len(line) - len(line.lstrip(" ")) for line in lines if line.strip()), default=0)
    return "\n".join(line[margin:] for line in lines) if margin else "\n".join(lines)


def _without(lines: list[str]) -> list[str] | None:
    written = [line for line in lines if line.strip()]
    enough = max(_FEWEST_LINES, _SHARE * len(written))
    for pattern in (RANK_TAG, _STAMP):
        if sum(pattern.match(line) is not None for line in written) >= enough:
            return [pattern.sub("", line, count=1) for line in lines]
    named = Counter(match[0].rstrip() for line in written if (match := _NAME.match(line[:_LONGEST_PREFIX])))
    if named and named.most_common(1)[0][1] >= enough:
        name = named.most_common(1)[0][0]
        has_blank = sum(line.startswith(f"{name} ") or line == name for line in written) >= enough
        return [line.removeprefix(name).removeprefix(" " if has_blank else "") for line in lines]
    return None


def _json_line(line: str) -> str:
    content = line.strip()
    return line if not content or _JSON_LINE.fullmatch(content[:20_000]) else ""


# What a parser found, as plain values for JSON.


def as_document(parsed: object) -> dict[str, Any]:
    """Return a parser's dataclass by its fields' names; without the `unavailable` of an object that refused nothing."""
    value = _plain(parsed)
    if not isinstance(value, dict):
        raise TypeError(type(parsed))
    return value


def _plain(value: object) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        named = {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
        if "values" in named and set(named) <= {"values", "unavailable"}:
            # a table whose columns the caller chose: they are the keys
            named = {**named["values"], **{name: item for name, item in named.items() if name != "values"}}
        if named.get("unavailable") == {}:
            del named["unavailable"]
        return named
    if isinstance(value, Mapping):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value.value if isinstance(value, Enum) else value


# Which tools can be read: those that a module names as its TOOL; each parser is imported when it is used.

_DECLARED = re.compile(r"^(?:[A-Z0-9]+_)*TOOL\b(?::[^=]*)?\s*=\s*[\"']([a-z0-9-]+)[\"']", re.MULTILINE)


@cache
def families() -> dict[str, dict[str, str]]:
    """Family → tool → module: the files below `parsers/FAMILY/`, searched for each TOOL and not imported."""
    by_family: dict[str, dict[str, str]] = {}
    for folder in map(Path, nodectl.facts.parsers.__path__):
        for path in sorted(folder.glob("*/**/*.py")):
            family, *rest = path.relative_to(folder).with_suffix("").parts
            for tool in _DECLARED.findall(path.read_text(encoding="utf-8")):
                by_family.setdefault(family, {})[tool] = ".".join(["nodectl.facts.parsers", family, *rest])
    return by_family


@cache
def tools() -> tuple[str, ...]:
    """Their names, as recordings and `nodectl parse` use them."""
    return tuple(sorted(tool for family in families().values() for tool in family))


@cache
def parser_of(tool: str) -> Callable[[str], object]:
    """Return the pure function that reads `tool`'s text into a frozen dataclass, or raises ParseError.

    KeyError if unknown.

    It is called `parse_TOOL`. Where that refuses a text because something stands before each of its lines, the text is
    read without it.
    """
    modules = {name: module for family in families().values() for name, module in family.items()}
    parse: Callable[[str], object] = getattr(import_module(modules[tool]), f"parse_{tool.replace('-', '_')}")

    def parse_any(text: str) -> object:
        try:
            return parse(text)
        except ParseError as error:
            from nodectl.facts.parsers.catalogue import readings

            for other in readings(text):
                try:
                    return parse(other)
                except ParseError:
                    continue
            raise error from None

    return parse_any
