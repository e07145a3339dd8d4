"""Names that pairs join into groups, directly or by others."""

from __future__ import annotations

from collections.abc import Iterable


def joined(names: Iterable[str], pairs: Iterable[tuple[str, str]]) -> dict[str, frozenset[str]]:
    """Each name's group, itself among them; of one name if no pair has it."""
    groups = {name: frozenset([name]) for name in names}
    for a, b in pairs:
        if b not in groups[a]:
            group = groups[a] | groups[b]
            groups |= dict.fromkeys(group, group)
    return groups
