"""Numbers of things in words: `1 host`, `3 hosts`, `2 switches`."""

from __future__ import annotations

_HISSING = ("s", "x", "ch", "sh")


def counted(number: object, one: str, many: str = "") -> str:
    """Return the number with its noun; `many` where more than the noun changes (`1 port has`, `2 ports have`)."""
    return f"{number} {one if number == 1 else many or one + ('es' if one.endswith(_HISSING) else 's')}"
