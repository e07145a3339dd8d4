"""Which hosts of a recording a pattern means: Ansible's host patterns, as far as they need no groups, and node sets."""

from __future__ import annotations

import re
from collections.abc import Sequence
from fnmatch import fnmatchcase

from nodectl.common.nodeset import expand
from nodectl.errors import InventoryError, UsageError

_SEPARATOR = re.compile(r"[,:](?![^\[]*\])")


def select(names: Sequence[str], pattern: str | None) -> tuple[str, ...]:
    """The names that `pattern` selects, in their order; InventoryError where there is none."""
    parts = [part.strip() for part in _SEPARATOR.split(pattern or "all") if part.strip()]
    plain = [part for part in parts if part[0] not in "!&"] or ["all"]
    chosen = {name for part in plain for name in _matching(names, part)}
    for part in parts:
        if part[0] == "&":
            chosen &= _matching(names, part[1:])
        elif part[0] == "!":
            chosen -= _matching(names, part[1:])
    if not chosen:
        raise InventoryError(f"no host of the recording matches '{pattern}'", f"it has {', '.join(names[:8])} …")
    return tuple(name for name in names if name in chosen)


def _matching(names: Sequence[str], part: str) -> set[str]:
    if part in ("all", "*"):
        return set(names)
    if part.startswith("~"):
        try:
            expression = re.compile(part[1:])
        except re.error as error:
            raise UsageError(f"--limit {part}: {error}", "correct the regular expression") from error
        return {name for name in names if expression.match(name)}
    if part in names:
        return {part}
    listed = expand(part) if "[" in part and "*" not in part else None
    return set(names) & set(listed) if listed else {name for name in names if fnmatchcase(name, part)}
