"""Answers of programs on a host, in frames, as JSON; one that cannot be read is an error that names its host."""

from __future__ import annotations

from typing import Any

from nodectl.common import bounded_json
from nodectl.errors import ParseError
from nodectl.payload.common.frames import texts


def documents(host: str, output: str | bytes) -> tuple[Any, ...]:
    """Return the documents in a host's output, whatever its shell printed around them; ParseError where one is cut."""
    try:
        return tuple(bounded_json.loads(text) for text in texts(output))
    except ValueError as error:
        raise ParseError(f"{host}: its answer cannot be read: {error}") from error


def document(host: str, output: str | bytes) -> Any:
    """Return the only document; ParseError where there is none, or more than one."""
    found = documents(host, output)
    if len(found) != 1:
        raise ParseError(f"{host}: its answer cannot be read: {len(found)} frames where one belongs")
    return found[0]
