"""Numbers as tools print them: a run of ten thousand digits, `nan` and `1e999` are no values."""

from __future__ import annotations

import math
import re

_WHOLE = re.compile(r"[+-]?[0-9]{1,18}")
_REAL = re.compile(r"[+-]?(?:[0-9]{1,40}(?:\.[0-9]{0,40})?|\.[0-9]{1,40})(?:[eE][+-]?[0-9]{1,4})?")


def whole(text: str) -> int | None:
    """An integer; None for any other text."""
    return int(text) if _WHOLE.fullmatch(text) else None


def real(text: str) -> float | None:
    """A finite number; None for any other text."""
    if not _REAL.fullmatch(text):
        return None
    value = float(text)
    return value if math.isfinite(value) else None
