"""Finds a tool's JSON document in text that may hold log lines around it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

# beyond this many braces nobody wrote a log before the document
_TRIES = 200


def find_document(text: str, wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any] | None:
    """The first object at the beginning of a line that is `wanted`; None where there is none, or it is cut."""
    position, tries = 0, 0
    for line in text.splitlines(keepends=True):
        if line.lstrip().startswith("{") and tries < _TRIES:
            tries += 1
            try:
                found, _ = json.JSONDecoder().raw_decode(text, position + line.index("{"))
            except (ValueError, RecursionError):
                found = None
            if isinstance(found, dict) and wanted(found):
                return found
        position += len(line)
    return None
