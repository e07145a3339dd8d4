"""How a job's processes are held together, so that all of them can be ended and none can leave."""

from __future__ import annotations

import os
import signal
import time
from typing import Any, Callable, Dict, Optional, Set

from . import cgroup, nsinit, syscalls
from .process import all_pids, descendants, is_alive, read_environ, read_stat, send

MARKER = "NODECTL_JOB_ID"
_QUIET_WALKS = 3


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

    @classmethod
    def create(cls, job_id: str, rank: int) -> Containment:
        """The best that this login may have, for the calling supervisor."""
        syscalls.become_subreaper()
        return cls(job_id, cgroup.create(f"{job_id}.{rank}"), nsinit.available(), os.getpid())

    @classmethod
    def recorded(cls, job_id: str, record: Dict[str, Any]) -> Containment:
        """From `record`; its supervisor is taken for dead."""
        self = cls(job_id, record.get("cgroup"), bool(record.get("namespace")), 0)
        self.outer, self.outer_ticks = int(record.get("outer", 0)), int(record.get("outer_ticks", 0))
        return self

    @property
    def kind(self) -> str:
        """For people: which of the means are at work."""
        parts = [name for name, used in (("cgroup", self.group), ("pid namespace", self.namespace)) if used]
        return " + ".join(parts) or "subreaper"

    def record(self) -> Dict[str, Any]:
        """What the state file keeps of it, from which `recorded` makes it again."""
        return {
            "kind": self.kind,
            "cgroup": self.group,
            "namespace": self.namespace,
            "outer": self.outer,
            "outer_ticks": self.outer_ticks,
        }

    def spawn(self, command: nsinit.Command) -> str:
        """Start the launcher inside; the reason where it cannot be started, else an empty text."""
        self.outer, problem = nsinit.spawn(command, self.group, self.namespace)
        stat = read_stat(self.outer)
        self.outer_ticks = stat.start_ticks if stat else 0
        return problem

    def terminate(self) -> None:
        """Ask the launcher to end (SIGTERM); it passes that on to its ranks."""
        if is_alive(self.outer, self.outer_ticks):
            send(self.outer, signal.SIGTERM)

    def members(self) -> Set[int]:
        """Living processes of the job."""
        pids = self._candidates() - self.spared - {os.getpid(), self.keeper}
        return {pid for pid in pids if _living(pid)}

    def _candidates(self) -> Set[int]:
        pids: Set[int] = set()
        if self.group:
            pids |= cgroup.members(self.group)
        if self.outer and is_alive(self.outer, self.outer_ticks):
            pids |= {self.outer} | descendants({self.outer})
        if self.group or self.namespace:
            return pids
        if self.keeper:
            return pids | descendants({self.keeper} | self.spared)
        return pids | {pid for pid in all_pids() if read_environ(pid).get(MARKER) == self.job_id}

    def kill(self, deadline_s: float, reap: Callable[[], None] = lambda: None) -> bool:
        """End every process of the job; True when none is left within the deadline."""
        ends_s = time.monotonic() + deadline_s
        quiet = rounds = 0
        while time.monotonic() < ends_s:
            if self.group:
                cgroup.kill(self.group)
            members = self.members()
            reap()
            quiet = 0 if members else quiet + 1
            if quiet >= (1 if self.group else _QUIET_WALKS):
                return True
            # without a group two walks stop what forks faster than it can be killed
            number = signal.SIGKILL if self.group or self.namespace or rounds >= 2 else signal.SIGSTOP
            for pid in members:
                send(pid, number)
            rounds += 1
            time.sleep(0.005)
        return not self.members()

    def remove(self) -> None:
        """Remove the job's cgroup, which must be empty."""
        if self.group:
            cgroup.remove(self.group)


def _living(pid: int) -> bool:
    stat = read_stat(pid)
    return stat is not None and stat.alive
