"""Which of a job's processes are ranks, and how each of them ended, seen before its launcher takes it away."""

from __future__ import annotations

import glob
import os
import select
import selectors
import signal
import time
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Set

from .classify import classify, torchrun_exit, wait_status
from .contain import MARKER
from .process import Stat, read_environ, read_stat
from .syscalls import process_handle

_SETTLED_S = 3.0  # after this a process has executed what it will be
_EAGER_S, _EAGER_LOOK_S, _LATE_LOOK_S = 10.0, 0.1, 0.2
_NO_HANDLE_S, _IDLE_S = 0.2, 60.0
_TAIL_BYTES = 16 * 1024
_SUMMARY_BYTES = 256 * 1024


class Rank(NamedTuple):
    """A running rank; `handle` is a pidfd, readable at its end (-1 where this kernel has none)."""

    pid: int
    start_ticks: int
    rank: int
    local_rank: int
    handle: int


class Death(NamedTuple):
    """A rank that ended; `code` as returncode, None where its launcher was faster; `after_stop`: we had ended it."""

    rank: int
    local_rank: int
    code: Optional[int]
    time: float
    after_stop: bool


class Output(NamedTuple):
    """The common output of an attempt's ranks: a file from `begin` on."""

    path: str
    begin: int = 0


class RankWatch:
    """Finds the `expected` ranks among `members(known ranks)`, and reports their ends.

    While it has all, it reads nothing: their handles wake the selector.
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
        self._first_seen: Dict[int, float] = {}
        self._eager_until_s = 0.0
        self._next_look_s = 0.0

    def expect(self, now_s: float) -> None:
        """Ranks are about to start: look often, because those that fail at once are gone soon."""
        self._eager_until_s = now_s + _EAGER_S
        self._next_look_s = now_s

    def wait_s(self, now_s: float) -> float:
        """Seconds until `look` has something to do; a handle wakes the selector before that."""
        if any(rank.handle < 0 for rank in self._ranks.values()):
            return _NO_HANDLE_S
        return max(0.0, self._next_look_s - now_s) if len(self._ranks) < self._expected else _IDLE_S

    def look(self, now_s: float) -> None:
        """Take up ranks that have started since."""
        if len(self._ranks) >= self._expected or now_s < self._next_look_s:
            return
        self._next_look_s = now_s + (_EAGER_LOOK_S if now_s < self._eager_until_s else _LATE_LOOK_S)
        members = self._members(set(self._ranks))
        self._first_seen = {pid: self._first_seen.get(pid, now_s) for pid in members}
        for pid, seen in self._first_seen.items():
            if pid not in self._ranks and now_s - seen < _SETTLED_S:
                self._take_up(pid)

    def _take_up(self, pid: int) -> None:
        env = read_environ(pid)
        if not (env.get("RANK", "").isdigit() and env.get("LOCAL_RANK", "").isdigit()):
            return
        stat = read_stat(pid)
        if stat is None or not self._is_launcher(read_environ(stat.ppid)):
            return
        rank = Rank(pid, stat.start_ticks, int(env["RANK"]), int(env["LOCAL_RANK"]), process_handle(pid))
        self._ranks[pid] = rank
        if rank.handle >= 0:
            self._selector.register(rank.handle, selectors.EVENT_READ)
            self._ends.register(rank.handle, select.POLLIN)

    def _is_launcher(self, env: Dict[str, str]) -> bool:
        """Not a rank, whose data loaders carry its variables, and no supervisor or init, which adopt orphans."""
        return env.get(MARKER) == self._job_id and "LOCAL_RANK" not in env

    def deaths(self, *, after_stop: bool) -> List[Death]:
        """Ranks that ended since the last call, in the order of their local rank."""
        ended: List[Death] = []
        told = {handle for handle, _ in self._ends.poll(0)} | {-1}
        for rank in sorted(self._ranks.values(), key=lambda item: item.local_rank):
            stat = read_stat(rank.pid) if rank.handle in told else None
            if rank.handle not in told or (stat is not None and stat.alive and stat.start_ticks == rank.start_ticks):
                continue
            self._forget(rank)
            ended.append(Death(rank.rank, rank.local_rank, _code(rank, stat), time.time(), after_stop))
        if ended:
            self.expect(time.monotonic())  # an elastic launcher starts others
        return ended

    def close(self) -> None:
        """Let go of the ranks' handles."""
        for rank in list(self._ranks.values()):
            self._forget(rank)

    def _forget(self, rank: Rank) -> None:
        del self._ranks[rank.pid]
        if rank.handle >= 0:
            self._selector.unregister(rank.handle)
            self._ends.unregister(rank.handle)
            os.close(rank.handle)


def _code(rank: Rank, stat: Optional[Stat]) -> Optional[int]:
    if stat is None or stat.start_ticks != rank.start_ticks:
        return None
    return wait_status(stat.exit_code)


def describe(death: Death, logs: str, output: Output, *, after_another: bool) -> Dict[str, Any]:
    """The death as a failure: `kind`, `message`, `rank`, `exit_status`, `time`; {} where it is none."""
    code = death.code
    if code is None:
        code = torchrun_exit(tail(output), death.local_rank)
    if code == 0 or (code is None and not after_another and not death.after_stop):
        return {}
    kind, message = classify(code, _stderr(logs, output, death.local_rank), after_another=after_another)
    if death.after_stop:
        kind = "terminated"
    status = None if code is None else (code if code >= 0 else 128 - code)
    return {"kind": kind, "message": message, "rank": death.rank, "exit_status": status, "time": death.time}


def unseen(
    plan: Dict[str, Any], logs: str, output: Output, *, known: Set[int], after_stop: bool
) -> List[Dict[str, Any]]:
    """Failures of ranks that had gone before anybody looked, as torchrun tells of them; `known` are left out."""
    text = tail(output, _SUMMARY_BYTES)
    failures = []
    for local_rank in range(plan["nproc_per_node"]):
        rank = plan["rank"] * plan["nproc_per_node"] + local_rank
        code = torchrun_exit(text, local_rank)
        if code and rank not in known:
            ours = after_stop and code == -signal.SIGTERM
            death = Death(rank, local_rank, code, time.time(), after_stop=ours)
            failures.append(describe(death, logs, output, after_another=False))
    return failures


def _stderr(logs: str, output: Output, local_rank: int) -> str:
    """The end of what the rank wrote: from its own log where the launcher keeps one, else from the common output."""
    own = glob.glob(os.path.join(glob.escape(logs), "**", f"attempt_*/{local_rank}/stderr.log"), recursive=True)
    if own:
        return tail(Output(max(own, key=os.path.getmtime)))
    mark = f"[default{local_rank}]:"
    lines = tail(output).splitlines()
    return "\n".join(line[len(mark) :] if line.startswith(mark) else line for line in lines)


def tail(output: Output, size_bytes: int = _TAIL_BYTES) -> str:
    """The last bytes of it as text; empty where it cannot be read."""
    try:
        with open(output.path, "rb") as file:
            file.seek(max(output.begin, os.fstat(file.fileno()).st_size - size_bytes, 0))
            return file.read().decode(errors="replace")
    except OSError:
        return ""
