"""What a parser found, as plain values for JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any


def as_document(parsed: object) -> dict[str, Any]:
    """A parser's dataclass by its fields' names; without the `unavailable` of an object that refused nothing."""
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
