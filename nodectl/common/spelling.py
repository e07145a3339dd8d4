"""The known name that a misspelt one may be."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from difflib import get_close_matches

# of what is alike in two names: below it a hint misleads
_NEAR = 0.6
# so alike are a name and its misspelling; what is less alike may be another name
_MISSPELT = 0.8


def nearest(name: str, candidates: Iterable[str], near: float = _NEAR) -> str:
    """Return the most alike of the known names, whatever the case; empty if none is near."""
    by_lower = {candidate.lower(): candidate for candidate in candidates}
    matches = get_close_matches(name.lower(), by_lower, 1, near)
    return by_lower[matches[0]] if matches else ""


def meant(name: str, candidates: Iterable[str]) -> str:
    """Return `did you mean tcp? `, to stand before what else is known; "" if nothing is near."""
    candidate = nearest(name, candidates)
    return f"did you mean {candidate}? " if candidate else ""


def misspelt(name: str, candidates: Collection[str], near: float = _MISSPELT) -> str:
    """Return the known name of which this one is probably a misspelling; empty if it may be a name of its own."""
    return "" if name in candidates else nearest(name, candidates, near)
