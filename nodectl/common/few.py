"""The first of many names, for a line that stays readable."""

from __future__ import annotations

from collections.abc import Sequence


def few(names: Sequence[str], most: int = 4) -> str:
    """`a, b, c, d and 3 more`; all of them where there are at most `most`."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")
