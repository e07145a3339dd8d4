"""Which tools can be read: those that a module names as its TOOL; each parser is imported when it is used."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import nodectl.facts.parsers


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


_DECLARED = re.compile(r"^(?:[A-Z0-9]+_)*TOOL\b(?::[^=]*)?\s*=\s*[\"']([a-z0-9-]+)[\"']", re.MULTILINE)


@cache
def modules() -> Mapping[str, str]:
    """Return the module of each tool: the files below this folder are searched for their TOOL, and not imported."""
    return {
        tool: ".".join(("nodectl.facts.parsers", *path.relative_to(folder).with_suffix("").parts))
        for folder in map(Path, nodectl.facts.parsers.__path__)
        for path in sorted(folder.glob("*/**/*.py"))
        for tool in _DECLARED.findall(path.read_text(encoding="utf-8"))
    }


def tools() -> tuple[str, ...]:
    """Their names, as recordings and `nodectl parse` use them."""
    return tuple(sorted(modules()))


@cache
def parser_of(tool: str) -> Callable[[str], object]:
    """Return the function `parse_TOOL` that reads the tool's text, or raises ParseError; KeyError if it is unknown."""
    parse: Callable[[str], object] = getattr(import_module(modules()[tool]), f"parse_{tool.replace('-', '_')}")
    return parse
