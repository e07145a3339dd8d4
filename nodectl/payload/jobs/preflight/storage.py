"""Where a job would write on this node, whether that works (by writing), how much room is left, and who else runs."""

from __future__ import annotations

import os
import stat
import time
from pathlib import Path
from typing import Any, Dict, List, Optional

from ...common.folders import made
from ..code_store import kept
from ..folder import JobFolder, known_jobs, state_root
from ..job_id import is_job_id
from ..process import all_pids, login_of, read_cmdline

_BLOCK_BYTES = 64 * 1024
_MIB = 1024 * 1024


def look(request: Dict[str, Any]) -> Dict[str, Any]:
    """Return the facts of folders, `needed_paths`, `kept_code`, `running_jobs`, `shared_memory` and `rdma_devices`."""
    checkpoints = request["checkpoint_dir"]
    no_folder = {"path": "", "error": "", "free_mib": None}
    return {
        "state_folder": folder(Path(state_root())),
        "checkpoint_folder": folder(Path(checkpoints).expanduser()) if checkpoints else no_folder,
        "needed_paths": {"errors": {path: path_error(Path(path), kind) for path, kind in request["paths"]}},
        "kept_code": {"digests": kept(request["project"])},
        "running_jobs": {"ids": running_jobs(), "others": others_jobs()},
        "shared_memory": {"size_mib": shm_mib()},
        "rdma_devices": {"names": sorted(path.name for path in Path("/sys/class/infiniband").glob("*"))},
    }


def path_error(path: Path, kind: str) -> str:
    """Why this login cannot read the file or folder (`kind`: file, folder or any); empty where it can."""
    try:
        is_folder = stat.S_ISDIR(os.stat(path).st_mode)
    except OSError as error:
        return error.strerror or str(error)
    if (kind == "folder" and not is_folder) or (kind == "file" and is_folder):
        return f"it is no {kind}"
    return "" if os.access(path, os.R_OK | (os.X_OK if is_folder else 0)) else "Permission denied"


def folder(path: Path) -> Dict[str, Any]:
    """Why nothing can be written there, and how much room is left."""
    return {"path": str(path), "error": write_error(path), "free_mib": free_mib(path)}


def write_error(folder: Path) -> str:
    """Why nothing can be written there; empty where it can."""
    try:
        with made(folder):
            _write_block(folder / f".nodectl-preflight-{os.getpid()}-{time.time_ns()}")
    except OSError as error:
        return error.strerror or str(error)
    return ""


def _write_block(path: Path) -> None:
    """Write and sync a block, and remove it again."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(b"\1" * _BLOCK_BYTES)
            file.flush()
            os.fsync(file.fileno())
    finally:
        path.unlink()


def free_mib(folder: Path) -> Optional[int]:
    """Room for this login on the file system that holds, or would hold, `folder`; None where it cannot be told."""
    try:
        here = next(path for path in (folder, *folder.parents) if path.exists())
        state = os.statvfs(here)
    except (OSError, StopIteration):
        return None
    return state.f_bavail * state.f_frsize // _MIB


def shm_mib() -> Optional[int]:
    """Size of /dev/shm, through which ranks of one node talk; None where there is none."""
    try:
        state = os.statvfs("/dev/shm")  # noqa: S108 (looked at, nothing is put there)
    except OSError:
        return None
    return state.f_blocks * state.f_frsize // _MIB


def running_jobs() -> List[str]:
    """Jobs of nodectl whose supervisor lives on this node."""
    return [job_id for job_id in known_jobs() if _runs(JobFolder(job_id))]


def others_jobs() -> List[str]:
    """`ID of LOGIN` of the jobs of other logins, by their supervisors' command lines: their folders are private."""
    jobs = set()
    for pid in all_pids():
        job_id = _started(read_cmdline(pid))
        if is_job_id(job_id) and not _is_ours(JobFolder(job_id)):
            jobs.add(f"{job_id} of {login_of(pid) or 'another login'}")
    return sorted(jobs)


def _is_ours(job: JobFolder) -> bool:
    return job.exists or os.path.isdir(job.partial)


def _started(words: List[str]) -> str:
    """Return the job that this process was to start; empty where that is not what it was for."""
    if "jobs.control" not in words:
        return ""
    command, job_id, *_ = [*words[words.index("jobs.control") + 1 :], "", ""]
    return job_id if command == "start" else ""


def _runs(job: JobFolder) -> bool:
    try:
        return job.supervisor_alive() and not job.state().get("final", False)
    except (OSError, ValueError):
        return False
