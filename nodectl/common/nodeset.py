"""Host names folded as operators write them; the only place that knows ClusterShell."""

from __future__ import annotations

import re
from collections.abc import Iterable

# what NodeSet takes for a name and nothing else: no range that it would spell out, no group that it would look up
_PLAIN = re.compile(r"[A-Za-z0-9._-]{1,255}")


def fold(names: Iterable[str]) -> str:
    """Return `gpu01 gpu02 gpu03 gpu07` as `gpu[01-03,07]`; names that no node set can hold follow, on the same line."""
    from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet, NodeSetParseError

    plain: list[str] = []
    others: list[str] = []
    for name in names:
        (plain if _PLAIN.fullmatch(name) else others).append(name)
    try:
        folded = [str(NodeSet.fromlist(plain, resolver=RESOLVER_NOGROUP))] if plain else []
    except NodeSetParseError:
        folded = sorted(plain)
    return ",".join([*folded, *(name if name.isprintable() else repr(name)[1:-1] for name in sorted(others))])


def expand(pattern: str) -> tuple[str, ...] | None:
    """Return `gpu[01-03]` as its names; None for what is no node set, or one beyond all fleets."""
    from ClusterShell.NodeSet import NodeSet, NodeSetException

    try:
        return None if _TOO_MANY.search(pattern) else tuple(NodeSet(pattern))
    except (NodeSetException, ValueError):
        return None


# with a dash or a comma in its brackets: `group[0]` and `group[0:2]` are Ansible's own
_FOLDED = re.compile(r"(?<![\w.&~\]-])(?P<sign>!?)(?P<set>[\w.-]*(?:\[\d+(?:[-,]\d+)+\][\w.-]*)+)")
# NodeSet spells out whatever it is given
_TOO_MANY = re.compile(r"\[[^\]]*-\d{6}")


def unfolded(pattern: str) -> str:
    """Return an Ansible host pattern with folded names, which Ansible does not know, spelt out."""
    return _FOLDED.sub(_spelt, pattern)


def _spelt(match: re.Match[str]) -> str:
    from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet, NodeSetException

    if _TOO_MANY.search(match["set"]):
        return match[0]
    try:
        names = NodeSet(match["set"], resolver=RESOLVER_NOGROUP)
    except NodeSetException:
        return match[0]
    return ",".join(f"{match['sign']}{name}" for name in names)
