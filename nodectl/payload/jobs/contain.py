"""Which processes belong to a job, and how all of them are ended.

Guard and supervisor are subreapers: whatever a rank has started stays below them, in whichever session or group.
"""

from __future__ import annotations

import os
import signal
import time
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Set

from . import shared_memory, syscalls
from .process import all_pids, below, descendants, is_alive, is_stopped, read_environ, read_stat, send

MARKER = "NODECTL_JOB_ID"
KILL_ROUND_S = 0.005
_QUIET_WALKS = 3
_ENGINE_S = 5.0  # for an engine to end its container


def by_mark() -> Dict[str, Set[int]]:
    """Return the living processes of jobs by the job's id in their environment."""
    pids: Dict[str, Set[int]] = {}
    for pid in all_pids():
        if job_id := read_environ(pid).get(MARKER):
            pids.setdefault(job_id, set()).add(pid)
    return pids


class Containment:
    """The processes of one job; `record` is what a later shell needs to end them.

    `container` is the command that ends the job's container, which a daemon may hold; `segments` are those that
    /dev/shm held before the job.
    """

    def __init__(self, job_id: str, guard: int, guard_ticks: int) -> None:
        self._job_id = job_id
        self.guard, self._guard_ticks = guard, guard_ticks
        self._is_own = False  # the caller is guard or supervisor
        self.spared: Set[int] = set()  # children of the supervisor that are not of the job, with all below them
        self._container: List[str] = []
        self._segments: Optional[Set[shared_memory.Segment]] = None

    @classmethod
    def create(cls, job_id: str, container: Sequence[str] = ()) -> Containment:
        """Make the calling process the guard of a new job."""
        syscalls.become_subreaper()
        stat = read_stat(os.getpid())
        made = cls(job_id, os.getpid(), stat.start_ticks if stat else 0)
        made._is_own, made._container, made._segments = True, list(container), shared_memory.present()
        return made

    @classmethod
    def recorded(cls, job_id: str, record: Dict[str, Any]) -> Containment:
        """Restore the containment from `record`; the job's supervisor is another process."""
        self = cls(job_id, int(record.get("guard", 0)), int(record.get("guard_ticks", 0)))
        self._container = [str(word) for word in record.get("container") or ()]
        if "segments" in record:
            self._segments = {(str(name), int(inode)) for name, inode in record["segments"]}
        return self

    def record(self) -> Dict[str, Any]:
        """Return the document for the state file, from which `recorded` restores the containment."""
        return {
            "guard": self.guard,
            "guard_ticks": self._guard_ticks,
            **({} if self._segments is None else {"segments": sorted(self._segments)}),
            **({"container": self._container} if self._container else {}),
        }

    def members(self, marked: Optional[Mapping[str, Set[int]]] = None) -> Set[int]:
        """Return the pids of the job's living processes; seen from another shell, guard and supervisor are among them.

        Without a guard those count that have the job's mark in their environment (`marked`, if they are known).
        """
        if self._is_own:
            return descendants({os.getpid()}) - self.spared - (descendants(self.spared) if self.spared else set())
        if self._has_guard():
            return {self.guard} | descendants({self.guard})
        return set((by_mark() if marked is None else marked).get(self._job_id, ()))

    def _has_guard(self) -> bool:
        return is_alive(self.guard, self._guard_ticks)

    def started(self, excluded: Set[int]) -> Set[int]:
        """Return the pids below the supervisor, without those below `excluded`; cheap enough for many calls."""
        return below(os.getpid(), excluded | self.spared)

    def kill(self, deadline_s: float, reap: Callable[[], None] = lambda: None) -> None:
        """End every process of the job, its guard at last; return when none is left, or after the deadline."""
        ends_s = time.monotonic() + deadline_s
        killing = Killing(self)
        while time.monotonic() < ends_s and not killing.round(reap):
            time.sleep(KILL_ROUND_S)
        if self._is_own:
            return
        # a guard that moves writes the job's end, and leaves
        while self._has_guard() and not is_stopped(self.guard) and time.monotonic() < ends_s:
            time.sleep(KILL_ROUND_S)
        if self._has_guard():
            send(self.guard, signal.SIGKILL)

    def mapped(self) -> Set[shared_memory.Segment]:
        """Return the shared memory that its processes have mapped, without segments that existed before the job."""
        return shared_memory.mapped_by(self.members()) - (self._segments or set())

    def remove(self) -> None:
        """Remove the shared memory that came with the job and that no process uses any more."""
        if self._segments is not None:
            shared_memory.remove_forsaken(self._segments)

    def end_container(self) -> int:
        """Start the command that ends the job's container; return its pid, 0 without one."""
        if not self._container:
            return 0
        pid = os.fork()
        if pid == 0:
            try:
                os.setsid()
                null = os.open(os.devnull, os.O_RDWR)
                for handle in range(3):
                    os.dup2(null, handle)
                os.execvp(self._container[0], self._container)  # noqa: S606 - an argv, and no shell is the point
            finally:
                os._exit(127)
        return pid


class Killing:
    """Kills every process of a job in rounds, so that the supervisor can do other work between them."""

    def __init__(self, containment: Containment) -> None:
        self._containment = containment
        self._quiet = self._rounds = 0
        self._begun_s = time.monotonic()
        self._engine = containment.end_container()

    def round(self, reap: Callable[[], None]) -> bool:
        """Kill the processes found now; True when none has been found for long enough."""
        engine = read_stat(self._engine) if self._engine else None
        if engine and engine.alive and time.monotonic() - self._begun_s < _ENGINE_S:  # it must live until it is done
            reap()
            return False
        members = self._containment.members() - {self._containment.guard}
        reap()
        self._quiet = 0 if members else self._quiet + 1
        # two rounds of SIGSTOP catch processes that fork faster than they can be killed
        for pid in members:
            send(pid, signal.SIGKILL if self._rounds >= 2 else signal.SIGSTOP)
        self._rounds += 1
        return self._quiet >= _QUIET_WALKS
