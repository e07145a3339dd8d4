"""How a job's processes are held together, so that all of them can be ended and none can leave."""

from __future__ import annotations

import os
import signal
import time
from typing import Any, Callable, Dict, List, Optional, Sequence, Set, Tuple

from . import cgroup, nsinit, shared_memory, syscalls
from .process import all_pids, below, descendants, is_alive, read_environ, read_stat, send

MARKER = "NODECTL_JOB_ID"
KILL_ROUND_S = 0.005
_QUIET_WALKS = 3
_ENGINE_S = 5.0  # for an engine to end its container


class Containment:
    """The group, the pid namespace or the subreaper of one job; `record` is what a later shell needs to end it."""

    def __init__(self, job_id: str, group: Optional[str], namespace: bool, keeper: int) -> None:
        self.job_id = job_id
        self.group = group
        self.namespace = namespace
        self.keeper = keeper  # the supervisor; without group and namespace its descendants are the job
        self.outer = 0
        self.outer_ticks = 0
        self.spared: Set[int] = set()
        self.hooks: Set[int] = set()  # spared with all below them
        self.segments: Optional[Set[shared_memory.Segment]] = None  # what was in /dev/shm before the job
        self.container: List[str] = []  # the command that ends the container, which a daemon may hold

    @classmethod
    def create(cls, job_id: str, rank: int, container: Sequence[str] = ()) -> Containment:
        """Make the strongest containment this login may have around the calling supervisor.

        `container` is the command that ends the job's container. A container engine records pids, which must stay valid
        outside the job, so with a container there is no pid namespace.
        """
        syscalls.become_subreaper()
        made = cls(job_id, cgroup.create(f"{job_id}.{rank}"), not container and nsinit.available(), os.getpid())
        made.container = list(container)
        made.segments = shared_memory.present()
        return made

    @classmethod
    def recorded(cls, job_id: str, record: Dict[str, Any]) -> Containment:
        """Restore the containment from `record`; its supervisor is assumed dead."""
        self = cls(job_id, record.get("cgroup"), bool(record.get("namespace")), 0)
        self.outer, self.outer_ticks = int(record.get("outer", 0)), int(record.get("outer_ticks", 0))
        self.container = [str(word) for word in record.get("container") or ()]
        if "segments" in record:
            self.segments = {(str(name), int(inode)) for name, inode in record["segments"]}
        return self

    @property
    def kind(self) -> str:
        """The means in use, for people: `cgroup + pid namespace` or `subreaper`."""
        parts = [name for name, used in (("cgroup", self.group), ("pid namespace", self.namespace)) if used]
        return " + ".join(parts) or "subreaper"

    def record(self) -> Dict[str, Any]:
        """Return the document for the state file, from which `recorded` restores the containment."""
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
        """Set the guard: the process below which the job's processes are started."""
        stat = read_stat(pid)
        self.outer, self.outer_ticks = pid, stat.start_ticks if stat else 0
        self.spared.add(pid)

    def environment(self) -> Dict[str, str]:
        """Return variables for the launcher: if no kernel object holds the ranks, a signal binds them to it."""
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
        """Return the pids of the job's living processes."""
        pids = self._candidates() - self.spared - {os.getpid(), self.keeper}
        return {pid for pid in pids if _living(pid)}

    def started(self, excluded: Set[int]) -> Set[int]:
        """Return the pids below the guard, without those below `excluded`; cheap enough for many calls."""
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
            return pids | descendants({self.keeper} | self.spared) - self.hooks - descendants(self.hooks)
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
        """Return the shared memory that its processes have mapped, without segments that existed before the job."""
        return shared_memory.mapped_by(self.members()) - (self.segments or set())

    def remove(self) -> None:
        """Remove the job's cgroup, which must be empty, and its shared memory that no process uses any more."""
        if self.group:
            cgroup.remove(self.group)
        if self.segments is not None:
            shared_memory.remove_forsaken(self.segments)


class Killing:
    """Kills every process of a job in rounds, so that the supervisor can do other work between them."""

    def __init__(self, containment: Containment) -> None:
        self._containment = containment
        self._quiet = self._rounds = 0
        self._begun_s = time.monotonic()
        self._engine = _run_engine(containment.container)

    def round(self, reap: Callable[[], None]) -> bool:
        """Kill the processes found now; True when none has been found for long enough."""
        held = self._containment
        if self._engine_runs():  # it ends the container that its daemon holds, so it must live until then
            reap()
            return False
        if held.group:
            cgroup.kill(held.group)
        members = held.members()
        reap()
        self._quiet = 0 if members else self._quiet + 1
        # without a group, two rounds of SIGSTOP catch processes that fork faster than they can be killed
        number = signal.SIGKILL if held.group or held.namespace or self._rounds >= 2 else signal.SIGSTOP
        for pid in members:
            send(pid, number)
        self._rounds += 1
        return self._quiet >= (1 if held.group else _QUIET_WALKS)

    def _engine_runs(self) -> bool:
        overdue = time.monotonic() - self._begun_s > _ENGINE_S
        return bool(self._engine) and not overdue and is_alive(*self._engine[0])


def _run_engine(argv: List[str]) -> List[Tuple[int, int]]:
    """Start the command that ends the container; return its pid and start time, [] without a container or command."""
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
    """Return all pids below `root` by a walk of /proc, which misses no process."""
    return descendants({root})


def _living(pid: int) -> bool:
    stat = read_stat(pid)
    return stat is not None and stat.alive
