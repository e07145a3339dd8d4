"""Finds the ranks among a job's processes, and how each ended, before its launcher reaps it."""

from __future__ import annotations

import os
import select
import selectors
import time
from typing import Callable, Dict, List, NamedTuple, Optional, Set, Tuple

from . import kernel, steady
from .contain import MARKER
from .process import Stat, is_alive, read_environ, read_stat, read_text
from .syscalls import process_handle

_EAGER_S, _EAGER_LOOK_S, _LATE_LOOK_S = 10.0, 0.1, 0.2
_NO_HANDLE_S, _IDLE_S = 0.2, 60.0


class Rank(NamedTuple):
    """A running rank; `handle` is a pidfd, readable at its end (-1 if this kernel has none).

    `counts` are its control `groups`' counters when it entered them, `gpu` is its GPU's PCI address if known.
    """

    pid: int
    start_ticks: int
    rank: int
    local_rank: int
    handle: int
    groups: str = ""
    counts: Optional[Dict[str, int]] = None
    gpu: str = ""


class Death(NamedTuple):
    """A rank that ended; `code` is the returncode (None: its launcher reaped it first); `after_stop`: nodectl ended it.

    `kills`: how many of the machine's processes the memory killer had ended shortly before.
    """

    rank: int
    local_rank: int
    code: Optional[int]
    time: float
    after_stop: bool
    pid: int = 0
    counts: Optional[Dict[str, int]] = None
    gpu: str = ""
    kills: Optional[int] = None


class RankWatch:
    """Finds the `expected` ranks among `members(known ranks)`, and reports their ends.

    Once it has found all of them it reads nothing more: their handles wake the selector.
    """

    def __init__(
        self,
        job_id: str,
        members: Callable[[Set[int]], Set[int]],
        selector: selectors.BaseSelector,
        expected: int,
    ) -> None:
        self._job_id = job_id
        self._members = members
        self._selector = selector
        self._expected = expected
        self._ends = select.poll()
        self._ranks: Dict[int, Rank] = {}
        self._eager_until_s = 0.0
        self._kills: Tuple[Optional[int], Optional[int]] = (None, None)
        self._next_look_s = 0.0

    def expect(self, now_s: float) -> None:
        """Look often from now on: ranks are about to start, and those that fail at once are soon gone."""
        self._eager_until_s = now_s + _EAGER_S
        self._next_look_s = now_s

    def wait_s(self, now_s: float) -> float:
        """Return the seconds until `look` is due; a rank's handle wakes the selector earlier."""
        if any(rank.handle < 0 for rank in self._ranks.values()):
            return _NO_HANDLE_S
        return max(0.0, self._next_look_s - now_s) if len(self._ranks) < self._expected else _IDLE_S

    def look(self, now_s: float) -> None:
        """Find ranks that have started since the last look."""
        if len(self._ranks) >= self._expected or now_s < self._next_look_s:
            return
        self._next_look_s = now_s + (_EAGER_LOOK_S if now_s < self._eager_until_s else _LATE_LOOK_S)
        for pid in self._members(set(self._ranks)) - set(self._ranks):
            self._take_up(pid)

    def _take_up(self, pid: int) -> None:
        env = read_environ(pid)
        if not (env.get("RANK", "").isdigit() and env.get("LOCAL_RANK", "").isdigit()):
            return
        stat = read_stat(pid)
        launcher = read_environ(stat.ppid) if stat else {}
        # a data loader's parent is a rank
        if stat is None or launcher.get(MARKER) != self._job_id or "LOCAL_RANK" in launcher:
            return
        local_rank = int(env["LOCAL_RANK"])
        gpu = kernel.gpu_address(env.get("CUDA_VISIBLE_DEVICES", ""), local_rank)
        rank = Rank(pid, stat.start_ticks, int(env["RANK"]), local_rank, process_handle(pid), gpu=gpu)
        self._ranks[pid] = _in_groups(rank)
        if rank.handle >= 0:
            self._selector.register(rank.handle, selectors.EVENT_READ)
            self._ends.register(rank.handle, select.POLLIN)

    def follow_groups(self) -> None:
        """Record what cannot be read after a rank's end: its present control groups, and the number of memory kills."""
        self._kills = (self._kills[1], kernel.host_kills())
        for pid, rank in self._ranks.items():
            self._ranks[pid] = _in_groups(rank)

    def deaths(self, *, after_stop: bool) -> List[Death]:
        """Return the ranks that ended since the last call, in the order of their local rank."""
        ended: List[Death] = []
        ended_handles = {handle for handle, _ in self._ends.poll(0)} | {-1}
        for rank in sorted(self._ranks.values(), key=lambda item: item.local_rank):
            stat = read_stat(rank.pid) if rank.handle in ended_handles else None
            if rank.handle not in ended_handles or (
                stat is not None and stat.alive and stat.start_ticks == rank.start_ticks
            ):
                continue
            self._forget(rank)
            code = _code(rank, stat)
            death = Death(rank.rank, rank.local_rank, code, steady.now(), after_stop, rank.pid, rank.counts, rank.gpu)
            ended.append(death._replace(kills=self._kills[0]))
        if ended:
            self.expect(time.monotonic())  # an elastic launcher starts new ranks
        return ended

    def running(self) -> List[Rank]:
        """Return the ranks that have not been reported as ended, by local rank."""
        return sorted(self._ranks.values(), key=lambda item: item.local_rank)

    def close(self) -> None:
        """Close the ranks' handles."""
        for rank in list(self._ranks.values()):
            self._forget(rank)

    def _forget(self, rank: Rank) -> None:
        del self._ranks[rank.pid]
        if rank.handle >= 0:
            self._selector.unregister(rank.handle)
            self._ends.unregister(rank.handle)
            os.close(rank.handle)


def _in_groups(rank: Rank) -> Rank:
    groups = read_text(f"/proc/{rank.pid}/cgroup") if is_alive(rank.pid, rank.start_ticks) else rank.groups
    if groups == rank.groups:
        return rank
    return rank._replace(groups=groups, counts=kernel.counts(kernel.counters(groups)))


def _code(rank: Rank, stat: Optional[Stat]) -> Optional[int]:
    if stat is None or stat.start_ticks != rank.start_ticks:
        return None
    number = stat.exit_code & 0x7F
    return -number if number else stat.exit_code >> 8
