"""The order of ranks that keeps neighbours close: hosts of one switch together, and near switches beside each other."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from math import inf

from nodectl.common.natural import natural
from nodectl.topology.hops import Distances


def rank_order(distances: Distances, homes: Mapping[str, frozenset[str]]) -> tuple[str, ...]:
    """All hosts, those with the same switches in counting order, then those nearest to them; always the same order."""
    groups: dict[frozenset[str], list[str]] = defaultdict(list)
    for host in sorted(homes, key=natural):
        groups[homes[host]].append(host)
    counted = {group: number for number, group in enumerate(groups)}
    bits = {group: distances.bits(group) for group in groups}
    left = set(groups)
    order: list[str] = []
    here = next(iter(groups), None)
    while here is not None:
        left.discard(here)
        order += groups[here]
        ours = here
        here = min(left, key=lambda each: (*_apart(distances, ours, bits[each]), counted[each]), default=None)
    return tuple(order)


def _apart(distances: Distances, ours: frozenset[str], theirs: int) -> tuple[float, float]:
    """How far two groups are: the worst of their ports, then all of them; endlessly far where no way leads."""
    ways = [distances.nearest(switch, theirs) for switch in ours]
    lengths = [inf if way is None else way for way in ways]
    return (max(lengths), sum(lengths))
