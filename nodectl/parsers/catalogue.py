"""Which tools can be read: those that a module names as its TOOL; each parser is imported when it is used."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import nodectl.parsers
from nodectl.common.declarations import load
from nodectl.errors import DeclarationError, ParseError

_DECLARED = re.compile(r"^(?:[A-Z0-9]+_)?TOOL\b(.*)$", re.MULTILINE)
_NAME = re.compile(r"(?::[^=]*)?\s*=\s*([\"'])([a-z0-9-]+)\1\s*(?:#.*)?")


@cache
def families() -> dict[str, dict[str, str]]:
    """Family → tool → module: the files below `parsers/FAMILY/`, searched for each TOOL and not imported."""
    by_family: dict[str, dict[str, str]] = {}
    homes: dict[str, str] = {}
    for folder in map(Path, nodectl.parsers.__path__):
        for path in sorted(folder.glob("*/**/*.py")):
            family, *rest = path.relative_to(folder).with_suffix("").parts
            module = ".".join(["nodectl.parsers", family, *rest])
            for tool in _tools_in(path.read_text(encoding="utf-8"), module):
                if tool in homes:
                    raise DeclarationError(f"there are two parsers of {tool}: {homes[tool]}, {module}")
                homes[tool] = by_family.setdefault(family, {})[tool] = module
    return by_family


def _tools_in(text: str, module: str) -> Iterator[str]:
    """The tools that a module names; DeclarationError for a TOOL that is no plain text of a to z, 0 to 9 and -."""
    for declared in _DECLARED.finditer(text):
        name = _NAME.fullmatch(declared[1])
        if name is None:
            line = text.count("\n", 0, declared.start()) + 1
            raise DeclarationError(f'{module}, line {line}: {declared[0]!r}: write TOOL = "name", of a-z, 0-9 and -')
        yield name[2]


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
    module, name = load(modules[tool]), f"parse_{tool.replace('-', '_')}"
    if not callable(getattr(module, name, None)):
        raise DeclarationError(f"{module.__name__}: its tool is called {tool!r}, and it has no function {name}")
    parse: Callable[[str], object] = getattr(module, name)

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
