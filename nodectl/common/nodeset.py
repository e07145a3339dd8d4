"""Host names folded as operators write them; the only place that knows ClusterShell."""

from __future__ import annotations

import re
from collections.abc import Iterable

# what NodeSet takes for a name and nothing else: no range that it would spell out, no group that it would look up
_PLAIN = re.compile(r"[A-Za-z0-9._-]{1,255}")


def fold(names: Iterable[str]) -> str:
    """`gpu01 gpu02 gpu03 gpu07` as `gpu[01-03,07]`; names that no node set can hold follow, on the same line."""
    from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet, NodeSetParseError

    plain: list[str] = []
    others: list[str] = []
    for name in names:
        (plain if _PLAIN.fullmatch(name) else others).append(name)
    try:
        folded = [str(NodeSet.fromlist(plain, resolver=RESOLVER_NOGROUP))] if plain else []
    except NodeSetParseError:
        folded = sorted(plain)
    return ",".join([*folded, *map(_visible, sorted(others))])


def _visible(name: str) -> str:
    return name if name.isprintable() else repr(name)[1:-1]


def expand(pattern: str) -> tuple[str, ...] | None:
    """`gpu[01-03]` as its names; None for what is no node set."""
    from ClusterShell.NodeSet import NodeSet, NodeSetException

    try:
        return tuple(NodeSet(pattern))
    except NodeSetException:
        return None
