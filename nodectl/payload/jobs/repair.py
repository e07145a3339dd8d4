"""What a job is here when its state cannot be read: from its processes, its control group, and nothing else."""

from __future__ import annotations

import os
import time
from typing import Any, Dict, List, Optional, Set

from . import cgroup
from .failures import row
from .process import all_pids, read_cmdline, read_environ, read_stat

_MARKER = "NODECTL_JOB_ID"


def rebuilt(
    job_id: str, rank: Optional[int], reason: str, changed_at: float, segments: Optional[List[Any]] = None
) -> Dict[str, Any]:
    """A state in the place of the one that `reason` says cannot be read, last written at `changed_at`.

    `segments`: what was in /dev/shm before the job; None where that is not known.
    """
    supervisor = _supervisor(job_id, rank)
    stat = read_stat(supervisor) if supervisor else None
    group = None if rank is None else _group(f"{job_id}.{rank}")
    alive = stat is not None or bool(group and cgroup.members(group)) or _has_processes(job_id)
    failure = row("launcher", f"its state was lost ({reason}): how it ended here is not known", changed_at)
    return {
        "state": "running" if alive else "failed",
        "final": not alive,
        "pid": supervisor,
        "start_ticks": stat.start_ticks if stat else 0,
        "containment": {"cgroup": group, "namespace": False, **({} if segments is None else {"segments": segments})},
        "ended_at": None if alive else changed_at,
        "failures": [] if alive else [failure],
        "repaired": reason,
    }


def _supervisor(job_id: str, rank: Optional[int]) -> int:
    """The process that `jobs.control start` left: the topmost of those with its words, as it forks; 0 for none."""
    own = {pid for pid in all_pids() if _is_keeper(_words(pid), job_id, rank)}
    parents = {pid: stat.ppid for pid, stat in ((pid, read_stat(pid)) for pid in own) if stat and stat.alive}
    return min((pid for pid, parent in parents.items() if parent not in own), default=0)


def _is_keeper(words: List[str], job_id: str, rank: Optional[int]) -> bool:
    """`jobs.control start ID`, with this host's rank where one is named."""
    return words[:3] == ["jobs.control", "start", job_id] and (rank is None or words[3:4] in ([], [str(rank)]))


def _words(pid: int) -> List[str]:
    words: List[str] = read_cmdline(pid)
    start = next((place for place, word in enumerate(words) if word == "jobs.control"), len(words))
    return words[start : start + 4]


def _group(name: str) -> Optional[str]:
    """The job's control group on this node, of whichever session it was made in."""
    mount = cgroup.mount_point()
    for folder, names, _ in os.walk(mount) if mount else ():
        if os.path.basename(folder) == "nodectl" and name in names:
            return os.path.join(folder, name)
    return None


def _has_processes(job_id: str) -> bool:
    pids: Set[int] = set(all_pids())
    return any(read_environ(pid).get(_MARKER) == job_id for pid in pids)


def modified_at(path: str) -> float:
    """Return when a file was written last; now, where it cannot be told."""
    try:
        return os.path.getmtime(path)
    except OSError:
        return time.time()
