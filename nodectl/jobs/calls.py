"""Compares the collectives that ranks called, within each process group, and finds calls that can never end."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nodectl.common.few import few

_DEFAULT = "0"  # torch's name of the group of all ranks
# collectives in which the ranks' sizes may differ
_UNEVEN = re.compile(r"all_?to_?all|(?:^|:)_?(?:gather|scatter)$|^nccl:_?all_?gather$|coalesced", re.IGNORECASE)
# these have a root, which the recorder does not hold
_ROOTED = re.compile(r"(?:broadcast|:_?(?:reduce|gather|scatter)(?:_oop)?$)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Call:
    """A rank's collective with its number in the process group, by torch's flight recorder; `sizes` are its inputs'."""

    rank: int
    group: str
    collective: str
    number: int
    sizes: str = ""
    types: str = ""

    @property
    def words(self) -> str:
        """Return the call in words, by which it is compared with another rank's."""
        types = f" of type {self.types}" if self.types else ""
        sizes = f" of sizes {self.sizes}{types}" if self.sizes and not _UNEVEN.search(self.collective) else ""
        return f"{self.collective} number {self.number}{sizes}{self.place}"

    @property
    def place(self) -> str:
        """The phrase ` in group NAME`; "" for the group of all ranks."""
        return "" if self.group in ("", _DEFAULT) else f" in group {self.group}"

    @property
    def where(self) -> tuple[str, str, int]:
        """The place of a call: calls at one place must be alike; NCCL and gloo number their calls independently."""
        return self.collective.partition(":")[0], self.group, self.number


@dataclass(frozen=True, slots=True)
class Calls:
    """The ranks' calls: `at` has each rank's newest call, `begun` the last number that it began in each group.

    `inside` are ranks whose newest call is not known to have ended; `made` are all known calls. `waits` has, by rank,
    the members of its call's group that are not known to have begun that call; `is_whole`: all members are known.
    """

    at: Mapping[int, Call]
    inside: frozenset[int]
    made: frozenset[Call]
    begun: Mapping[int, Mapping[str, int]]
    waits: Mapping[int, frozenset[int]]
    is_whole: bool = False

    @property
    def wanted(self) -> frozenset[int]:
        """Return the ranks for which others wait."""
        return frozenset(rank for ranks in self.waits.values() for rank in ranks)

    @property
    def behind(self) -> tuple[int, ...]:
        """Return the recorded ranks for which others wait although no collective holds them up."""
        held = {rank for rank in self.inside if not self._is_over(rank)}
        return tuple(sorted(rank for rank in (self.wanted & set(self.begun)) - held if not self.waits[rank]))

    @property
    def stuck(self) -> tuple[int, ...]:
        """Return the ranks in the first call that its whole group has begun and that has not ended for them."""
        held = [rank for rank in self.inside if not self.waits[rank] and not self._is_over(rank)]
        first = min((self.at[rank].where for rank in held), default=None)
        return tuple(sorted(rank for rank in held if self.at[rank].where == first))

    def _is_over(self, rank: int) -> bool:
        """Tell whether another rank has left this rank's collective, which proves that all ranks had begun it."""
        call = self.at[rank]
        later = any(numbers.get(call.group, 0) > call.number for numbers in self.begun.values())
        return later and not _ROOTED.search(call.collective)

    @property
    def stuck_line(self) -> str:
        """Return a line on the stuck call, its ranks and the likely reason; "" if not all members are known."""
        if not self.stuck or not self.is_whole:
            return ""
        call, ranks = self.at[self.stuck[0]], ", ".join(map(str, self.stuck))
        root = "their root (src, dst) differs, " if _ROOTED.search(call.collective) else ""
        return (
            f"rank {ranks} did not go on from {call.collective} number {call.number}{call.place}, to which all ranks of"
            f" its group came: perhaps {root}the network between them or a GPU fails, or they waited for something else"
            " after it; which rank is at fault is not known"
        )

    def may_be_wanted(self, rank: int) -> bool:
        """Tell whether others may wait for a rank: nothing proves the contrary."""
        return not self.is_whole or rank in self.wanted

    @property
    def circle(self) -> tuple[int, ...]:
        """Return ranks each of which waits for the next, and the last for the first; () if there is no such circle."""
        for start in sorted(self.waits):
            way = [start]
            while others := self.waits.get(way[-1], frozenset()) & set(self.begun):
                following = min(others)
                if following in way:
                    return tuple(way[way.index(following) :])
                way.append(following)
        return ()

    def unlike(self) -> tuple[Call, ...]:
        """Return the calls of the first place (a group and a number) at which ranks called different things."""
        for place in sorted({call.where for call in self.at.values()}):
            rows = sorted((call for call in self.made if call.where == place), key=lambda call: call.rank)
            if len({call.words for call in rows}) > 1:
                return tuple(rows)
        return ()

    def line(self, rank: int) -> str:
        """Return where a rank is, and for whom it waits."""
        waits = sorted(self.waits.get(rank, ()))
        whom = f", where it waits for rank {', '.join(map(str, waits))}" if waits else ""
        return f"rank {rank} came to {self.at[rank].words}{whom}"


def read(records: Mapping[int, Mapping[str, Any]]) -> Calls:
    """Compare the process groups by name (as payload/jobs/flight.py's `summary` has them) that nodes tell, by rank."""
    at: dict[int, Call] = {}
    begun: dict[int, Mapping[str, int]] = {}
    made: set[Call] = set()
    inside: set[int] = set()
    members: dict[str, set[int]] = defaultdict(set)
    for rank, groups in records.items():
        rows = [_call(rank, name, row) for name, row in sorted(groups.items())]
        if not rows:
            continue
        begun[rank] = {call.group: call.number for call in rows}
        pending = [_call(rank, name, {**row, **row["pending"]}) for name, row in groups.items() if row.get("pending")]
        at[rank] = next(iter(pending or rows))
        inside |= {rank} if pending else set()
        made |= {*rows, *pending}
        made |= {_call(rank, name, call) for name, row in groups.items() for call in row.get("recent") or ()}
        for name, row in groups.items():
            members[name] |= {rank, *map(int, row.get("members") or ())}
    is_whole = bool(at) and all(records[rank][call.group].get("members") for rank, call in at.items())
    waits = {rank: _awaited(call, begun, members[call.group]) for rank, call in at.items()}
    return Calls(at, frozenset(inside), frozenset(made), begun, waits, is_whole)


def _call(rank: int, group: str, row: Mapping[str, Any]) -> Call:
    sizes, types = str(row.get("sizes", "")), str(row.get("types", "") or "")
    return Call(rank, group, str(row["collective"]), int(row["number"]), sizes, types)


def _awaited(call: Call, begun: Mapping[int, Mapping[str, int]], members: Iterable[int]) -> frozenset[int]:
    others = (rank for rank in members if rank != call.rank)
    return frozenset(rank for rank in others if begun.get(rank, {}).get(call.group, 0) < call.number)


def odd_one(calls: Iterable[Call]) -> tuple[Call | None, str, int]:
    """Return the call that fewer ranks made, the others' call, and its count; None if both are equally many."""
    rows = list(calls)
    usual = Counter(call.words for call in rows).most_common(2)
    if len(usual) < 2 or usual[0][1] == usual[1][1]:
        return None, "", 0
    return next(call for call in rows if call.words != usual[0][0]), usual[0][0], usual[0][1]


def numbers(ranks: Sequence[int], most: int = 8) -> str:
    """Return ranks in a sentence: `0, 1, 2 and 5 more`."""
    return few([str(rank) for rank in ranks], most)
