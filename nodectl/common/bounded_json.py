"""JSON that others wrote: what is nested without end is refused where it is read, not where it is shown later."""

from __future__ import annotations

import json
import sys
from typing import Any

# no tool nests its document half as deep
DEEPEST = 64


def loads(text: str | bytes) -> Any:
    """Return the document; ValueError where it is none, or nested too deep."""
    try:
        document = json.loads(text)
    except RecursionError as error:
        raise _too_deep() from error
    except ValueError as error:
        refuse_long_number(error)
        raise
    if isinstance(document, dict | list) and not _is_surely_flat(text):
        refuse_deep(document)
    return document


def _is_surely_flat(text: str | bytes) -> bool:
    """Return whether it has no more brackets than may be nested: most documents are that short."""
    if isinstance(text, bytes):
        # in UTF-16 and UTF-32 a bracket is this byte, too
        return text.count(b"[") + text.count(b"{") <= DEEPEST
    return text.count("[") + text.count("{") <= DEEPEST


def refuse_long_number(error: ValueError) -> None:
    """In our words where a number has more digits than Python reads: its advice is none for who wrote the file."""
    if "integer string conversion" in str(error):
        raise ValueError(f"a number of more than {sys.get_int_max_str_digits():,} digits") from error


def refuse_deep(document: object) -> None:
    """ValueError where it is nested too deep."""
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
