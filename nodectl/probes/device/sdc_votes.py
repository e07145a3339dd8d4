"""Who computed something else than the others of its kind, or than itself before: a vote of units and of hosts."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Unit:
    """A GPU or a processor: what it is, and how often which digest came out of which operation."""

    host: str
    name: str
    kind: Hashable
    digests: Mapping[str, Mapping[str, int]]

    @property
    def place(self) -> tuple[str, str]:
        """What tells it from all others."""
        return self.host, self.name


@dataclass(frozen=True, slots=True)
class Doubt:
    """Units of one kind that differ, and nobody can tell who is right: the camps of each digest, by operation."""

    operations: tuple[str, ...]
    camps: tuple[tuple[tuple[str, str], ...], ...]


@dataclass(slots=True)
class Votes:
    """By place, the operations in which it differs from itself, and from most others; and what cannot be told."""

    unstable: dict[tuple[str, str], list[str]] = field(default_factory=dict)
    odd: dict[tuple[str, str], list[str]] = field(default_factory=dict)
    doubts: list[Doubt] = field(default_factory=list)

    def suspects(self) -> set[tuple[str, str]]:
        """Every place that is not beyond doubt."""
        camps = {place for doubt in self.doubts for camp in doubt.camps for place in camp}
        return {*self.unstable, *self.odd, *camps}


def vote(units: Sequence[Unit]) -> Votes:
    """A result is right where more than half of all units have it, and more than half of the hosts with such units."""
    votes = Votes()
    kinds: dict[Hashable, list[Unit]] = defaultdict(list)
    for unit in units:
        kinds[unit.kind].append(unit)
        changing = [name for name, found in unit.digests.items() if len(found) > 1]
        if changing:
            votes.unstable[unit.place] = changing
    for alike in kinds.values():
        unclear: dict[tuple[tuple[tuple[str, str], ...], ...], list[str]] = defaultdict(list)
        for name in sorted({name for unit in alike for name in unit.digests}):
            camps = _camps(alike, name)
            right = _right(camps)
            if len(camps) > 1 and right is None:
                unclear[tuple(sorted(tuple(places) for places in camps.values()))].append(name)
            for digest, places in camps.items():
                for place in places if right not in (None, digest) else ():
                    votes.odd.setdefault(place, []).append(name)
        votes.doubts += [Doubt(tuple(names), camps) for camps, names in unclear.items()]
    return votes


def _camps(units: Sequence[Unit], operation: str) -> dict[str, list[tuple[str, str]]]:
    """The places of each digest; those that differ from themselves have no vote."""
    camps: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for unit in units:
        found = unit.digests.get(operation, {})
        if len(found) == 1:
            camps[next(iter(found))].append(unit.place)
    return camps


def _right(camps: Mapping[str, Sequence[tuple[str, str]]]) -> str | None:
    places = Counter({digest: len(own) for digest, own in camps.items()})
    hosts = {digest: {host for host, _ in own} for digest, own in camps.items()}
    all_hosts = set().union(*hosts.values()) if hosts else set()
    for digest, count in places.most_common(1):
        if 2 * count > places.total() and 2 * len(hosts[digest]) > len(all_hosts):
            return digest
    return None
