"""JSON of hosts and files: refused when it is read if nested without end; frames of nodes; plain values of Ansible."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from nodectl.errors import ParseError
from nodectl.payload.common.frames import texts

# no tool nests its document half as deep
DEEPEST = 64


def loads(text: str | bytes) -> Any:
    """Return the document; ValueError if it is none, or nested too deep."""
    try:
        document = json.loads(text)
    except RecursionError as error:
        raise _too_deep() from error
    if isinstance(document, dict | list) and not _is_surely_flat(text):
        refuse_deep(document)
    return document


def _is_surely_flat(text: str | bytes) -> bool:
    """Return whether it has no more brackets than may be nested: most documents are that short."""
    if isinstance(text, bytes):
        # in UTF-16 and UTF-32 a bracket is this byte, too
        return text.count(b"[") + text.count(b"{") <= DEEPEST
    return text.count("[") + text.count("{") <= DEEPEST


def refuse_deep(document: object) -> None:
    """Raise ValueError if it is nested too deep."""
    level = [document]
    for _ in range(DEEPEST):
        level = [
            child
            for node in level
            for child in (node.values() if isinstance(node, dict) else node if isinstance(node, list) else ())
            if isinstance(child, dict | list)
        ]
        if not level:
            return
    raise _too_deep()


def _too_deep() -> ValueError:
    return ValueError(f"nested deeper than {DEEPEST} levels")


def documents(host: str, output: str | bytes) -> tuple[Any, ...]:
    """Return the documents in a host's output, whatever its shell printed around them; ParseError if one is cut."""
    try:
        return tuple(loads(text) for text in texts(output))
    except ValueError as error:
        raise ParseError(f"{host}: its answer cannot be read: {error}") from error


def document(host: str, output: str | bytes) -> Any:
    """Return the only document; ParseError if there is none, or more than one."""
    frames = documents(host, output)
    if len(frames) != 1:
        raise ParseError(f"{host}: its answer cannot be read: {len(frames)} frames where one belongs")
    return frames[0]


def plain_value(value: object) -> Any:
    """Through JSON; TypeError for what JSON has not."""
    return json.loads(json.dumps(value, default=_text))


def _text(value: object) -> str:
    # up to ansible-core 2.18 a vaulted text is a sequence of its own kind, and no str
    if isinstance(value, Sequence):
        return str(value)
    raise TypeError(f"{type(value).__name__} is not a value of JSON")
