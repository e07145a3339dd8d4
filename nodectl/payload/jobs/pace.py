"""Finds a straggler: a rank that works longer in each step than the others, which wait for it where they meet.

In synchronous training all steps are equally long on all ranks. What differs is how late each comes to the collectives,
which the ranks note by blocks of steps (in_rank/nodectl_pace.py).
"""

from __future__ import annotations

from statistics import median
from typing import Any, Dict, Iterable, List, Mapping, NamedTuple, Optional, Sequence

STRAGGLER = "straggler"  # the class of the failure by which its host gives way
PERCENT = 20
_BLOCKS, _LEAST_S = 3, 20.0  # so many blocks in a row, and so long, it must be slow
_LEAST_WORK, _LEAST_EFFECT = 0.1, 0.05  # shares of a step: the least that counts as work, and as a delay
KEPT = 40
Row = Mapping[str, Any]


class Lag(NamedTuple):
    """A straggler: how much longer it works than the others, and than which time; since which step, in how many."""

    rank: int
    late_s: float
    work_s: float
    step_s: float
    since: int
    steps: int

    @property
    def percent(self) -> float:
        """Return by how much it is slower than the others."""
        return 100 * self.late_s / self.work_s

    def text(self) -> str:
        """Return what is known of it, with its evidence, without its host."""
        return (
            f"rank {self.rank} is {self.percent:.0f} % slower than the others, which wait for it: since step "
            f"{self.since} of its optimizer, for {self.steps} steps, it came {self.late_s:.3g} s later than they to "
            f"where ranks meet (they work {self.work_s:.3g} s; a step takes {self.step_s:.3g} s)"
        )


class Paces:
    """The blocks of all ranks of an attempt."""

    def __init__(self) -> None:
        self._blocks: Dict[int, Dict[int, Row]] = {}

    def note(self, rows: Iterable[Row]) -> None:
        """Add what hosts tell of their ranks; it may be known."""
        for row in rows:
            own = self._blocks.setdefault(row["rank"], {})
            own.update((block["step"], block) for block in row["blocks"])
            for step in sorted(own)[:-KEPT]:
                del own[step]

    def straggler(self, percent: float = PERCENT) -> Optional[Lag]:
        """Return the slowest rank that is slower than that now, and was in each of the last blocks; None without."""
        groups = {name for blocks in self._blocks.values() for block in blocks.values() for name in block["groups"]}
        found = [lag for name in groups for lag in self._of_group(name, percent)]
        return max(found, key=lambda lag: lag.late_s, default=None)

    def _of_group(self, name: str, percent: float) -> List[Lag]:
        """Return the stragglers among those that were last at the newest step that all members of a group tell."""
        members = [rank for rank, own in self._blocks.items() if any(name in block["groups"] for block in own.values())]
        if len(members) < 2:
            return []
        known = [{step for step, block in self._blocks[rank].items() if name in block["groups"]} for rank in members]
        steps = sorted(set.intersection(*known))
        if not steps:
            return []
        newest = {rank: self._blocks[rank][steps[-1]]["groups"][name] for rank in members}
        last = {max(members, key=lambda rank: newest[rank][place]) for place in (0, 1)} | {min(members)}
        lags = (self._lag(rank, [other for other in members if other != rank], name, steps, percent) for rank in last)
        return [lag for lag in lags if lag is not None]

    def _lag(self, rank: int, others: List[int], name: str, steps: List[int], percent: float) -> Optional[Lag]:
        slow: List[Lag] = []
        for step in reversed(steps):
            own = self._blocks[rank][step]
            pairs = [_compared(self._blocks[other][step]["groups"][name], rank) for other in others]
            mine = _compared(own["groups"][name], rank)
            times = [median(column) for column in zip(*pairs)]  # noqa: B905 - Python 3.8
            late_s = max(here - there for here, there in zip(mine, times))  # noqa: B905 - Python 3.8
            step_s, work_s = own["step_s"], times[-1]
            # of NCCL's collectives the time within them is known, not that before
            work_s = max(work_s if work_s > 0 else step_s + work_s, _LEAST_WORK * step_s)
            if late_s <= max(work_s * percent / 100, step_s * _LEAST_EFFECT):
                break
            slow.append(Lag(rank, late_s, work_s, step_s, step - own["steps"], own["steps"]))
        count = sum(lag.steps for lag in slow)
        if len(slow) < _BLOCKS or sum(lag.steps * lag.step_s for lag in slow) < _LEAST_S:
            return None
        late_s, work_s, step_s = (median(getattr(lag, key) for lag in slow) for key in ("late_s", "work_s", "step_s"))
        return Lag(rank, late_s, work_s, step_s, max(0, slow[-1].since), count)


def _compared(pair: Sequence[float], rank: int) -> Sequence[float]:
    """Return the part that judges a rank: of rank 0, which writes between steps, its backward pass alone."""
    return [pair[1] - pair[0]] if rank == 0 else pair


class Exchange:
    """Decides whether the host of some ranks is to give its place to a spare: one of them slows down all others."""

    def __init__(self, percent: float, ranks: Sequence[int]) -> None:
        self.percent, self.ranks = percent, ranks
        self.rows: List[Row] = []
        self._paces = Paces()
        self._found_ns: Optional[int] = None

    def why(self, elsewhere: Iterable[Row], newest_ns: int) -> str:
        """Return why, once a checkpoint has come since that was found (`newest_ns`: of the newest one); else ""."""
        self._paces.note([*self.rows, *elsewhere])
        lag = self._paces.straggler(self.percent)
        if lag is None or lag.rank not in self.ranks:
            self._found_ns = None
            return ""
        self._found_ns = newest_ns if self._found_ns is None else self._found_ns
        return lag.text() if newest_ns > self._found_ns else ""
