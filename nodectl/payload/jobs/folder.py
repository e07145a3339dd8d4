"""A job's folder on a node: where its files lie, who may read them, and how its state is written and read."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import shutil
import sys
import time
from typing import Any, Dict, Iterator, List, Optional, Tuple

from ..common.bounds import fitted
from .failures import row
from .job_id import PLAN_VERSION, is_job_id
from .process import all_pids, is_alive, read_cmdline, read_stat, read_text, send

_ROOM_BYTES = 64 * 1024
# of a state, what tells of failures: its texts may be cut
_TOLD = ("failures", "living", "xids", "flight", "heard", "attempts", "no_restart")
_PARTIAL, _UNDONE = ".partial", ".undone"
_FULL_BYTES = 64 * 1024
_FILES_SHOWN, _MOST_FILES = 5, 10_000
_AGAIN_S = 0.05
_STATE: Dict[str, type] = {
    "state": str,
    "final": bool,
    "pid": int,
    "start_ticks": int,
    "boot_id": str,
    "containment": dict,
    "failures": list,
}
_CONTAINMENT: Dict[str, type] = {"guard": int, "guard_ticks": int, "segments": list, "container": list}


class JobFolderError(Exception):
    """A job's folder is missing, unreadable or cannot be written; the text says which and why."""


def login_home() -> str:
    """Return HOME; if a start file has unset or emptied it, the home folder in the password database."""
    import pwd  # rarely needed

    try:
        return os.environ.get("HOME") or pwd.getpwuid(os.geteuid()).pw_dir
    except KeyError:  # a number without a login
        return "/"


def state_root() -> str:
    """Return `${XDG_STATE_HOME:-~/.local/state}/nodectl`: everything nodectl writes on a node lies below it."""
    base = os.environ.get("XDG_STATE_HOME") or os.path.join(login_home(), ".local", "state")
    return os.path.join(base, "nodectl")


def payload_folder() -> str:
    """Return the folder of the programs of which this one is."""
    return os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def venv_of(plan: Dict[str, Any], host: Dict[str, Any]) -> str:
    """Return the environment of one of the plan's hosts: its own, else the job's."""
    return str(host.get("venv") or plan.get("venv") or "")


def boot_id() -> str:
    """Return the id of this boot of the node; "" if the kernel gives none."""
    return read_text("/proc/sys/kernel/random/boot_id").strip()


def jobs_root() -> str:
    """Return the folder of all jobs of this login."""
    return os.path.join(state_root(), "jobs")


def check_id(job_id: str) -> str:
    """Return `job_id`; raise JobFolderError if it is no job's id, because it becomes part of a path."""
    if not is_job_id(job_id):
        raise JobFolderError(f"not a job id: {job_id!r}")
    return job_id


class JobFolder:
    """Paths and files of one job on this node; `environment` is what the operator gave its ranks, in memory alone."""

    def __init__(self, job_id: str) -> None:
        self.id = check_id(job_id)
        self.path = os.path.join(jobs_root(), job_id)
        self.partial = os.path.join(jobs_root(), f".{job_id}{_PARTIAL}")
        self.environment: Dict[str, str] = {}

    def at(self, *names: str) -> str:
        """Return a path inside the folder."""
        return os.path.join(self.path, *names)

    @property
    def exists(self) -> bool:
        """Tell whether the job was received on this node."""
        return os.path.isfile(self.at("plan.json"))

    def plan(self) -> Dict[str, Any]:
        """Return the plan as it was sent, with this node's `rank`; JobFolderError for another nodectl's."""
        plan = self._read_json("plan.json")
        if plan.get("version") != PLAN_VERSION:
            raise JobFolderError(
                f"job {self.id} has a plan of version {plan.get('version')!r}, and this nodectl reads version"
                f" {PLAN_VERSION}: use the nodectl that started it"
            )
        plan["rank"] = self._read_rank()
        if plan["rank"] is None:
            raise JobFolderError(f"job {self.id}: its rank file is damaged")
        return plan

    def rank(self) -> Optional[int]:
        """Return this node's place in the plan; None if that cannot be read."""
        try:
            return self._read_rank()
        except (OSError, JobFolderError):
            return None

    def _read_rank(self) -> Optional[int]:
        rank = self._read_json("rank").get("rank")
        return rank if isinstance(rank, int) else None

    def secret(self) -> bytes:
        """Return the job's key for heartbeats."""
        with open(self.at("secret"), "rb") as file:
            return file.read()

    def state(self) -> Dict[str, Any]:
        """Return the last written state, or a rebuilt one; `received` before a supervisor has started."""
        path = self.at("state.json")
        for _ in range(2):  # on a full disk it may be written at this moment
            try:
                state = self._read_json("state.json")
                if {"state", "final"} <= state.keys() and _is_sound(state):
                    return _ended_if_rebooted(state, _modified_at(path))
                reason = "state.json holds no state"
            except FileNotFoundError:
                return {"state": "received", "final": True}
            except (OSError, JobFolderError) as error:
                reason = str(error)
            time.sleep(_AGAIN_S)
        return _rebuilt_from_processes(self, reason, _modified_at(path))

    def write_state(self, state: Dict[str, Any]) -> None:
        """Replace the state atomically and sync it; on a full disk, write into the room that the last one takes."""
        path = self.at("state.json")
        try:
            write_atomic(path, json.dumps(state).encode().ljust(_ROOM_BYTES))
        except OSError as error:
            data = fitted(
                lambda cut: {name: cut(value) if name in _TOLD else value for name, value in state.items()},
                _ROOM_BYTES,
            )
            is_full = error.errno in (errno.ENOSPC, errno.EDQUOT)
            if not is_full or len(data) > _ROOM_BYTES or not os.path.exists(path):
                raise
            with open(path, "r+b") as file:
                file.write(data.ljust(_ROOM_BYTES))
                file.truncate()
                _sync(file)

    def note_stop(self, operator: str) -> None:
        """Record who ends the job; the first operator stays recorded, and on a full disk nobody is."""
        with contextlib.suppress(OSError), open(self.at("stopped_by"), "xb") as file:
            file.write(operator.encode(errors="backslashreplace"))

    def stopped_by(self) -> str:
        """Return who ended the job; empty if nobody did, or nobody knows."""
        try:
            with open(self.at("stopped_by"), encoding="utf-8", errors="replace") as file:
                return file.read(200)
        except OSError:
            return ""

    @property
    def stop_requested(self) -> bool:
        """Tell whether anybody, named or not, has asked for the job's end on this node."""
        return os.path.exists(self.at("stopped_by"))

    def supervisor_alive(self) -> bool:
        """Tell whether the supervisor that wrote the state still runs."""
        state = self.state()
        return is_alive(int(state.get("pid", 0)), int(state.get("start_ticks", 0)))

    def signal_supervisor(self, number: int) -> bool:
        """Send the supervisor a signal; False if it does not run."""
        alive = self.supervisor_alive()
        if alive:
            send(int(self.state()["pid"]), number)
        return alive

    def _read_json(self, name: str) -> Dict[str, Any]:
        with open(self.at(name), "rb") as file:
            text = file.read()
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            value = None
        if not isinstance(value, dict):
            what = "is damaged" if text.strip(b" \0\n") else "is empty"
            raise JobFolderError(f"job {self.id}: its {name} {what}")
        return value

    @property
    def tombstone(self) -> str:
        """The path of the mark that the start was undone, so that a late `receive` or `start` gives up."""
        return os.path.join(jobs_root(), f".{self.id}{_UNDONE}")

    def undo(self) -> None:
        """Let nothing of this job be received or started here any more."""
        os.makedirs(jobs_root(), mode=0o700, exist_ok=True)
        with contextlib.suppress(OSError):  # on a full disk at least what is there is removed
            _create(self.tombstone).close()

    def remove(self) -> str:
        """Remove the folder, its secret first because many files take time; return why something is left, or "".

        An interrupted removal leaves a folder that is listed and cleaned like a broken upload.
        """
        for path in (os.path.join(folder, "secret") for folder in (self.partial, self.path)):
            with contextlib.suppress(OSError):
                os.unlink(path)
        shutil.rmtree(self.partial, ignore_errors=True)
        with contextlib.suppress(OSError):
            os.rename(self.path, self.partial)
        return _remove(self.partial) or _remove(self.path)

    @property
    def undone(self) -> bool:
        """The start was undone."""
        return os.path.exists(self.tombstone)

    def is_receiving(self) -> bool:
        """Tell whether a process unpacks the job at this moment: it holds the folder's lock."""
        with contextlib.suppress(FileNotFoundError):
            handle = os.open(self.partial, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
            finally:
                os.close(handle)
        return False


def _is_sound(state: Dict[str, Any]) -> bool:
    """Tell whether the values that this program works with are of their types."""
    held = state.get("containment", {})
    return (
        _are_of(state, _STATE)
        and _are_of(held, _CONTAINMENT)
        and all(isinstance(pair, list) and list(map(type, pair)) == [str, int] for pair in held.get("segments", ()))
    )


def _are_of(values: Dict[str, Any], kinds: Dict[str, type]) -> bool:
    return all(isinstance(values.get(name, kind()), kind) for name, kind in kinds.items())


def _ended_if_rebooted(state: Dict[str, Any], written_at: float) -> Dict[str, Any]:
    if state["final"] or state.get("boot_id", boot_id()) == boot_id():
        return state
    failure = row("rebooted", "the node was rebooted while the job ran there", written_at)
    failures = [*state.get("failures", ()), failure]
    return {**state, "state": "failed", "final": True, "ended_at": written_at, "failures": failures, "pid": 0}


def write_atomic(path: str, data: bytes) -> None:
    """Write a 0600 file in one step, on the disk when this returns; a failed attempt leaves the old file alone."""
    temporary = f"{path}.{os.getpid()}{_PARTIAL}"
    try:
        with _create(temporary) as file:
            file.write(data)
            _sync(file)
        os.replace(temporary, path)
        sync(os.path.dirname(path))
    except OSError:
        if os.path.exists(temporary):
            os.unlink(temporary)
        raise


def is_full(path: str) -> bool:
    """Tell whether a file system has no space for last messages."""
    try:
        state = os.statvfs(path)
    except OSError:
        return False
    return state.f_blocks > 0 and state.f_bavail * state.f_frsize < _FULL_BYTES


def no_space(path: str) -> str:
    """Return the sentence for a full disk; "" if it has space."""
    return f"no space is left on the file system of {path}" if is_full(path) else ""


def sync(path: str) -> None:
    """Sync a file, or a folder's names, to the disk; file systems without that operation are ignored."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        with contextlib.suppress(OSError):
            os.fsync(handle)
    finally:
        os.close(handle)


def _sync(file: Any) -> None:
    file.flush()
    os.fsync(file.fileno())


def extract(folder: str) -> None:
    """Unpack the tar.gz that comes on stdin; JobFolderError if it is none, or not whole."""
    import tarfile  # what else is asked of a job need not wait for it

    try:
        with tarfile.open(fileobj=sys.stdin.buffer, mode="r|gz") as archive:
            options: Any = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
            archive.extractall(folder, **options)  # noqa: S202 - what the operator's own nodectl packed
    except tarfile.TarError as error:
        raise JobFolderError(str(error)) from error


def partial_jobs() -> List[str]:
    """Ids of the jobs whose folder was not received to its end."""
    return _hidden(_PARTIAL)


def undone_jobs() -> List[str]:
    """Ids of the jobs whose start was undone here."""
    return _hidden(_UNDONE)


def _hidden(ending: str) -> List[str]:
    names = [name for name in _names_in_root() if name.startswith(".") and name.endswith(ending)]
    return sorted(filter(is_job_id, (name[1 : -len(ending)] for name in names)))


def _names_in_root() -> List[str]:
    try:
        return os.listdir(jobs_root())
    except FileNotFoundError:
        return []


def new_files(folder: str, since_s: float) -> List[str]:
    """Return some files below a folder that are newer than `since_s`, without Python's caches; last `N more`."""
    names = sorted(_newer(folder, since_s))
    more = len(names) - _FILES_SHOWN
    return [*names[:_FILES_SHOWN], *([f"{more} more"] if more > 0 else [])]


def _newer(folder: str, since_s: float) -> Iterator[str]:
    seen = 0
    for path, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if name != "__pycache__"]
        for name in names:
            seen += 1
            if seen > _MOST_FILES:
                return
            with contextlib.suppress(OSError):
                if os.lstat(os.path.join(path, name)).st_mtime >= since_s:
                    yield os.path.relpath(os.path.join(path, name), folder)


def known_jobs() -> List[str]:
    """Ids of the jobs that were received on this node, oldest first."""
    return sorted(name for name in _names_in_root() if is_job_id(name) and JobFolder(name).exists)


def _create(path: str) -> Any:
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600), "wb")


def _remove(path: str) -> str:
    """Remove a folder; return why it is still there, or ""."""
    try:
        shutil.rmtree(path)
    except OSError as error:
        shutil.rmtree(path, ignore_errors=True)
        return f"{path}: {error.strerror}" if os.path.exists(path) else ""
    return ""


def _rebuilt_from_processes(job: JobFolder, reason: str, changed_at: float) -> Dict[str, Any]:
    from . import shared_memory
    from .contain import Containment  # a state is rarely lost

    guard, supervisor = _keepers(job.id, job.rank())
    stat, guard_stat = read_stat(supervisor), read_stat(guard)
    containment = {
        "guard": guard,
        "guard_ticks": guard_stat.start_ticks if guard_stat else 0,
        "segments": sorted(shared_memory.present(before_s=_modified_at(job.at("plan.json")))),
    }
    alive = stat is not None or bool(Containment.recorded(job.id, containment).members())
    failure = row("launcher", f"its state was lost ({reason}): how it ended here is not known", changed_at)
    return {
        "state": "running" if alive else "failed",
        "final": not alive,
        "pid": supervisor,
        "start_ticks": stat.start_ticks if stat else 0,
        "containment": containment,
        "ended_at": None if alive else changed_at,
        "failures": [] if alive else [failure],
        "repaired": reason,
    }


def _keepers(job_id: str, rank: Optional[int]) -> Tuple[int, int]:
    """Return the pids of guard and supervisor: the topmost process of `jobs.control start`, and its child; 0 for none.

    If one of them has ended, the other one counts as both.
    """
    keepers = {pid for pid in all_pids() if _is_keeper(pid, job_id, rank)}
    parents = {pid: stat.ppid for pid, stat in ((pid, read_stat(pid)) for pid in keepers) if stat and stat.alive}
    guard = min((pid for pid, parent in parents.items() if parent not in keepers), default=0)
    return guard, min((pid for pid, parent in parents.items() if parent == guard), default=guard)


def _is_keeper(pid: int, job_id: str, rank: Optional[int]) -> bool:
    cmdline: List[str] = read_cmdline(pid)
    start = next((place for place, word in enumerate(cmdline) if word == "jobs.control"), len(cmdline))
    arguments = cmdline[start : start + 4]
    return arguments[:3] == ["jobs.control", "start", job_id] and (rank is None or arguments[3:] in ([], [str(rank)]))


def _modified_at(path: str) -> float:
    try:
        return os.path.getmtime(path)
    except OSError:
        return time.time()
