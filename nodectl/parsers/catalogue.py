"""Which tools can be read: those that a module names as its TOOL; each parser is imported when it is used."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path

import nodectl.parsers
from nodectl.errors import ParseError

_DECLARED = re.compile(r'^(?:[A-Z0-9]+_)?TOOL = "([a-z0-9-]+)"$', re.MULTILINE)


@cache
def families() -> dict[str, dict[str, str]]:
    """Family → tool → module: the files below `parsers/FAMILY/`, searched for each TOOL and not imported."""
    by_family: dict[str, dict[str, str]] = {}
    for folder in map(Path, nodectl.parsers.__path__):
        for path in sorted(folder.glob("*/**/*.py")):
            family, *rest = path.relative_to(folder).with_suffix("").parts
            for tool in _DECLARED.findall(path.read_text(encoding="utf-8")):
                by_family.setdefault(family, {})[tool] = ".".join(["nodectl.parsers", family, *rest])
    return by_family


@cache
def tools() -> tuple[str, ...]:
    """Their names, as recordings and `nodectl parse` use them."""
    return tuple(sorted(tool for family in families().values() for tool in family))


@cache
def parser_of(tool: str) -> Callable[[str], object]:
    """The pure function that reads `tool`'s text into a frozen dataclass, or raises ParseError; KeyError if unknown.

    It is called `parse_TOOL`. Where that refuses a text because something stands before each of its lines, the text is
    read without it.
    """
    modules = {name: module for family in families().values() for name, module in family.items()}
    module = importlib.import_module(modules[tool])
    parse: Callable[[str], object] = getattr(module, f"parse_{tool.replace('-', '_')}")

    def parse_any(text: str) -> object:
        try:
            return parse(text)
        except ParseError as error:
            from nodectl.parsers.prefixes import readings

            for other in readings(text):
                try:
                    return parse(other)
                except ParseError:
                    continue
            raise error from None

    return parse_any
