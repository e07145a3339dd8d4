"""The order in which operators count: node2 before node10."""

from __future__ import annotations

import re

_DIGITS = re.compile(r"(\d+)")


def natural(name: str) -> tuple[tuple[int, int, str], ...]:
    """Return a key that sorts numbers in names as numbers."""
    return tuple(_part(part) for part in _DIGITS.split(name) if part)


def _part(part: str) -> tuple[int, int, str]:
    if not part.isdecimal():
        return (1, 0, part)
    digits = part.lstrip("0")
    return (0, len(digits), digits)
