"""How a job's processes are held together, so that all of them can be ended and none can leave."""

from __future__ import annotations

import math
import os
import signal
import time
from typing import Any, Callable, Dict, List, Optional, Sequence, Set, Tuple

from . import cgroup, nsinit, shared_memory, syscalls
from .process import all_pids, below, descendants, is_alive, read_environ, read_stat, send

MARKER = "NODECTL_JOB_ID"
KILL_ROUND_S = 0.005
_QUIET_WALKS = 3
_LEFT_S = 5.0  # from the end of a job's ranks to that of the last of what they left
_ENGINE_S = 5.0  # for an engine to end its container


class Containment:
    """The group, the pid namespace or the subreaper of one job; `record` is what a later shell needs to end it."""

    def __init__(self, job_id: str, group: Optional[str], namespace: bool, keeper: int) -> None:
        self.job_id = job_id
        self.group = group
        self.namespace = namespace
        self.keeper = keeper  # the supervisor, whose descendants count where there is nothing better
        self.outer = 0
        self.outer_ticks = 0
        self.spared: Set[int] = set()
        self.segments: Optional[Set[shared_memory.Segment]] = None  # what was in /dev/shm before the job
        self.container: List[str] = []  # what ends that part of the job which an engine's daemon holds

    @classmethod
    def create(cls, job_id: str, rank: int, container: Sequence[str] = ()) -> Containment:
        """Make the best that this login may have, for the calling supervisor; `container` ends the job's container.

        Engines of containers note pids, which must mean the same to who ends them later: they get no pid namespace.
        """
        syscalls.become_subreaper()
        made = cls(job_id, cgroup.create(f"{job_id}.{rank}"), not container and nsinit.available(), os.getpid())
        made.container = list(container)
        made.segments = shared_memory.present()
        return made

    @classmethod
    def recorded(cls, job_id: str, record: Dict[str, Any]) -> Containment:
        """Make it again from `record`; its supervisor is taken for dead."""
        self = cls(job_id, record.get("cgroup"), bool(record.get("namespace")), 0)
        self.outer, self.outer_ticks = int(record.get("outer", 0)), int(record.get("outer_ticks", 0))
        self.container = [str(word) for word in record.get("container") or ()]
        if "segments" in record:
            self.segments = {(str(name), int(inode)) for name, inode in record["segments"]}
        return self

    @property
    def kind(self) -> str:
        """For people: which of the means are at work."""
        parts = [name for name, used in (("cgroup", self.group), ("pid namespace", self.namespace)) if used]
        return " + ".join(parts) or "subreaper"

    def record(self) -> Dict[str, Any]:
        """Return what the state file keeps of it, from which `recorded` makes it again."""
        return {
            "kind": self.kind,
            "cgroup": self.group,
            "namespace": self.namespace,
            "outer": self.outer,
            "outer_ticks": self.outer_ticks,
            **({} if self.segments is None else {"segments": sorted(self.segments)}),
            **({"container": self.container} if self.container else {}),
        }

    def guarded_by(self, pid: int) -> None:
        """Below this process, the guard, the job's processes are started."""
        stat = read_stat(pid)
        self.outer, self.outer_ticks = pid, stat.start_ticks if stat else 0
        self.spared.add(pid)

    def environment(self) -> Dict[str, str]:
        """Return variables for the launcher: where no kernel object holds the ranks, a signal binds them to it."""
        binds = os.path.join(os.path.dirname(os.path.abspath(__file__)), "with_launcher.sh")
        return {} if self.namespace or not os.access(binds, os.X_OK) else {"NODECTL_WITH_LAUNCHER": binds}

    def terminate(self) -> None:
        """Ask the launcher to end (SIGTERM, by way of the guard); it passes that on to its ranks."""
        if is_alive(self.outer, self.outer_ticks):
            send(self.outer, signal.SIGTERM)

    def end_guard(self) -> None:
        """Kill the guard before its supervisor, so that it does not take the supervisor's end for a failure."""
        if is_alive(self.outer, self.outer_ticks):
            send(self.outer, signal.SIGKILL)

    def members(self) -> Set[int]:
        """Living processes of the job."""
        pids = self._candidates() - self.spared - {os.getpid(), self.keeper}
        return {pid for pid in pids if _living(pid)}

    def started(self, excluded: Set[int]) -> Set[int]:
        """Return the launcher and what it has started, not what is below `excluded`; cheap enough for many calls."""
        return below(self.outer, excluded)

    def _candidates(self) -> Set[int]:
        pids: Set[int] = set()
        if self.group:
            pids |= cgroup.members(self.group)
        walk = below if self.group or self.namespace else _all_below
        if self.outer and is_alive(self.outer, self.outer_ticks):
            pids |= {self.outer} | walk(self.outer, set())
        if self.group or self.namespace:
            return pids
        if self.keeper:
            return pids | descendants({self.keeper} | self.spared)
        return pids | {pid for pid in all_pids() if read_environ(pid).get(MARKER) == self.job_id}

    def kill(self, deadline_s: float, reap: Callable[[], None] = lambda: None) -> bool:
        """End every process of the job; True when none is left within the deadline."""
        ends_s = time.monotonic() + deadline_s
        killing = Killing(self)
        while time.monotonic() < ends_s:
            if killing.round(reap):
                return True
            time.sleep(KILL_ROUND_S)
        return not self.members()

    def mapped(self) -> Set[shared_memory.Segment]:
        """Return what its processes have mapped, without what was there before the job: that is another program's."""
        return shared_memory.mapped_by(self.members()) - (self.segments or set())

    def remove(self, ended_at: Optional[float] = None) -> None:
        """Remove the job's cgroup, which must be empty, and shared memory that the job has left to nobody.

        What was made well after the job's end, where that is known, is none of it.
        """
        if self.group:
            cgroup.remove(self.group)
        if self.segments is not None:
            made_by_s = math.inf if ended_at is None else ended_at + _LEFT_S
            shared_memory.remove_forsaken(self.segments, made_by_s)


class Killing:
    """The end of every process of a job, in rounds, so that its supervisor can do something else between them."""

    def __init__(self, containment: Containment) -> None:
        self._containment = containment
        self._quiet = self._rounds = 0
        self._begun_s = time.monotonic()
        self._engine = _run_engine(containment.container)

    def round(self, reap: Callable[[], None]) -> bool:
        """Kill what is there; True when none has been left for long enough."""
        held = self._containment
        if self._engine_runs():  # it ends what its daemon holds, and is not to be ended with the others
            reap()
            return False
        if held.group:
            cgroup.kill(held.group)
        members = held.members()
        reap()
        self._quiet = 0 if members else self._quiet + 1
        # without a group two walks stop what forks faster than it can be killed
        number = signal.SIGKILL if held.group or held.namespace or self._rounds >= 2 else signal.SIGSTOP
        for pid in members:
            send(pid, number)
        self._rounds += 1
        return self._quiet >= (1 if held.group else _QUIET_WALKS)

    def _engine_runs(self) -> bool:
        overdue = time.monotonic() - self._begun_s > _ENGINE_S
        return bool(self._engine) and not overdue and is_alive(*self._engine[0])


def _run_engine(argv: List[str]) -> List[Tuple[int, int]]:
    """Pid and start of the engine's program that ends the container; none where there is none, or no such program."""
    if not argv:
        return []
    pid = os.fork()
    if pid == 0:
        try:
            os.setsid()
            null = os.open(os.devnull, os.O_RDWR)
            for handle in range(3):
                os.dup2(null, handle)
            os.execvp(argv[0], argv)  # noqa: S606 - an argv, and no shell is the point
        finally:
            os._exit(127)
    stat = read_stat(pid)
    return [(pid, stat.start_ticks)] if stat else []


def _all_below(root: int, _leaves: Set[int]) -> Set[int]:
    """Find processes by a walk of all, which misses none of those that are there."""
    return descendants({root})


def _living(pid: int) -> bool:
    stat = read_stat(pid)
    return stat is not None and stat.alive
