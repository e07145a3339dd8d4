"""JSON of hosts and files: refused when it is read if nested without end; frames of nodes; plain values of Ansible."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from nodectl.errors import ParseError
from nodectl.payload.common.frames import texts


def loads(text: str | bytes) -> Any:
    """Return the document; ValueError if it is none, or nested too deep."""
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("nested too deep") from error


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
