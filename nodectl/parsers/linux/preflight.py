"""Knows the form of a host's answer to preflight: JSON lines, the last of them the whole of what was looked at."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from nodectl.errors import ParseError
from nodectl.model.preflight import NodeInfo

_FIELDS = tuple(field.name for field in fields(NodeInfo) if field.name not in ("host", "clock_offset_s"))


def parse_preflight(text: str, host: str, clock_offset_s: float | None) -> NodeInfo:
    """The answer of `host`; ParseError names the line that is none, or what is missing."""
    answer = _answer(text)
    missing = [name for name in _FIELDS if name not in answer]
    if missing:
        raise ParseError(f"preflight answer of {host} lacks {', '.join(missing)}")
    values = {name: _frozen(answer[name]) for name in _FIELDS}
    return NodeInfo(host=host, clock_offset_s=clock_offset_s, **values)


def _answer(text: str) -> Mapping[str, Any]:
    for number, line in enumerate(text.splitlines(), start=1):
        try:
            document = json.loads(line)
        except ValueError as error:
            raise ParseError(f"preflight answer line {number}: {line[:200]!r}: {error}") from error
        if isinstance(document, dict) and isinstance(document.get("node"), dict):
            node: Mapping[str, Any] = document["node"]
            return node
    raise ParseError("preflight answer holds no node")


def _frozen(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(value)
    if isinstance(value, dict):
        return {key: _frozen(inner) for key, inner in value.items()}
    return value
