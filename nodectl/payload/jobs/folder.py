"""A job's folder on a node: where its files lie, who may read them, and how its state is written and read."""

from __future__ import annotations

import errno
import json
import os
import re
from typing import Any, Dict, Iterator, List

from .process import is_alive, send

_ID = re.compile(r"[a-z0-9][a-z0-9-]{0,63}")
_RESERVE_BYTES = 64 * 1024


class JobFolderError(Exception):
    """A job's folder is missing, unreadable or cannot be written; the text says which and why."""


def state_root() -> str:
    """`${XDG_STATE_HOME:-$HOME/.local/state}/nodectl`: everything nodectl writes on a node lies below it."""
    base = os.environ.get("XDG_STATE_HOME") or os.path.join(os.path.expanduser("~"), ".local", "state")
    return os.path.join(base, "nodectl")


def payload_folder() -> str:
    """The folder of the programs of which this one is."""
    return os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def jobs_root() -> str:
    """The folder of all jobs of this login."""
    return os.path.join(state_root(), "jobs")


def is_job_id(text: str) -> bool:
    """It may be the id of a job."""
    return _ID.fullmatch(text) is not None


def check_id(job_id: str) -> str:
    """`job_id` itself; JobFolderError where it is none (it becomes part of a path)."""
    if not is_job_id(job_id):
        raise JobFolderError(f"not a job id: {job_id!r}")
    return job_id


class JobFolder:
    """Paths and files of one job on this node."""

    def __init__(self, job_id: str) -> None:
        self.id = check_id(job_id)
        self.path = os.path.join(jobs_root(), job_id)

    def at(self, *names: str) -> str:
        """A path inside the folder."""
        return os.path.join(self.path, *names)

    @property
    def exists(self) -> bool:
        """The job was received here."""
        return os.path.isfile(self.at("plan.json"))

    def plan(self) -> Dict[str, Any]:
        """The plan as it was sent, with this node's `rank`."""
        plan = self._read_json("plan.json")
        plan["rank"] = self._read_json("rank")["rank"]
        return plan

    def secret(self) -> bytes:
        """The job's key for heartbeats and checkpoint copies."""
        with open(self.at("secret"), "rb") as file:
            return file.read()

    def take_environment(self) -> Dict[str, str]:
        """What --env and --env-file gave; the file is gone after that, for only the ranks are to know it."""
        values = self._read_json("env.json")
        os.unlink(self.at("env.json"))
        return {str(name): str(value) for name, value in values.items()}

    def state(self) -> Dict[str, Any]:
        """The last written state; `received` where no supervisor has started yet."""
        try:
            return self._read_json("state.json")
        except FileNotFoundError:
            return {"state": "received", "final": True}

    def reserve(self) -> None:
        """Set space aside, so that the last state can be written on a disk that has become full."""
        with _create(self.at("state.reserve")) as file:
            file.write(b" " * _RESERVE_BYTES)
            file.flush()
            os.fsync(file.fileno())

    def write_state(self, state: Dict[str, Any]) -> None:
        """Replace the state in one step, from the reserve where the disk is full."""
        data = json.dumps(state).encode()
        try:
            write_atomic(self.at("state.json"), data)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT) or len(data) > _RESERVE_BYTES:
                raise
            with open(self.at("state.reserve"), "r+b") as file:
                file.write(data.ljust(_RESERVE_BYTES))
            os.replace(self.at("state.reserve"), self.at("state.json"))

    def supervisor_alive(self) -> bool:
        """The supervisor that wrote the state still runs."""
        state = self.state()
        return is_alive(int(state.get("pid", 0)), int(state.get("start_ticks", 0)))

    def signal_supervisor(self, number: int) -> bool:
        """Send the supervisor a signal; False where it does not run."""
        alive = self.supervisor_alive()
        if alive:
            send(int(self.state()["pid"]), number)
        return alive

    def _read_json(self, name: str) -> Dict[str, Any]:
        with open(self.at(name), encoding="utf-8") as file:
            value: Dict[str, Any] = json.load(file)
        return value


def write_atomic(path: str, data: bytes) -> None:
    """Write a 0600 file in one step; a failed attempt leaves the old file and nothing else."""
    temporary = f"{path}.{os.getpid()}.partial"
    try:
        with _create(temporary) as file:
            file.write(data)
        os.replace(temporary, path)
    except OSError:
        if os.path.exists(temporary):
            os.unlink(temporary)
        raise


def known_jobs() -> List[str]:
    """Ids of the jobs that were received on this node, oldest first."""
    return sorted(_job_names())


def _job_names() -> Iterator[str]:
    try:
        names = os.listdir(jobs_root())
    except FileNotFoundError:
        return
    for name in names:
        if _ID.fullmatch(name) and JobFolder(name).exists:
            yield name


def _create(path: str) -> Any:
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600), "wb")
