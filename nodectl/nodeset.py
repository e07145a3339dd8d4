"""Host names folded as operators write them; the only place that knows ClusterShell."""

from __future__ import annotations

from collections.abc import Iterable


def fold(names: Iterable[str]) -> str:
    """`gpu01 gpu02 gpu03 gpu07` as `gpu[01-03,07]`; names that no node set can hold are joined by commas."""
    from ClusterShell.NodeSet import NodeSet, NodeSetParseError

    listed = list(names)
    try:
        return str(NodeSet.fromlist(listed))
    except NodeSetParseError:
        return ",".join(sorted(listed))


def expand(pattern: str) -> tuple[str, ...] | None:
    """`gpu[01-03]` as its names; None for what is no node set."""
    from ClusterShell.NodeSet import NodeSet, NodeSetException

    try:
        return tuple(NodeSet(pattern))
    except NodeSetException:
        return None
