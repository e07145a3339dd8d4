"""The first of many names, and the beginning of a long text, for a line that stays readable."""

from __future__ import annotations

from collections.abc import Sequence


def few(names: Sequence[str], most: int = 4) -> str:
    """Return `a, b, c, d and 3 more`; all of them if there are at most `most`."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")


def clipped(text: str, longest: int) -> str:
    """Return the text, or its beginning and how long it was."""
    return text if len(text) <= longest else f"{text[:longest]}… ({len(text)} characters)"
