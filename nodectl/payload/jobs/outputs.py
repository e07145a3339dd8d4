"""Where a job's output lies on a node: its files, when how much of each had come, and how much is kept.

The launcher's own output is `output.log`; each rank's is in files of its own below `ranks/`, in one copy where the
launch script left `only-copy` beside them (else `output.log` has their lines, too). While the job runs a row in
`output.index` says every other second how long the files are. Where they take more than the job's limit, the oldest
part is given back to the file system: the file begins with a hole.
"""

from __future__ import annotations

import errno
import os
import re
import sys
import time
from typing import Dict, Iterator, List, NamedTuple, Optional, Tuple

from .folder import JobFolder

COMMON = "output.log"
_INDEX = "output.index"
_ONLY_COPY = "only-copy"
_RANK_FILE = re.compile(r"(?:.*/)?attempt_\d+/(\d+)/std(?:out|err)\.log")
# DeepSpeed's launcher names the rank among all; the launch script names the host's first one in the folder
_DEEPSPEED_FILE = re.compile(r"(?:.*/)?deepspeed_from_(\d+)/\d+_rank(\d+)\.log")
_BLOCK_BYTES = 4096  # of a file system: a hole in a part of one frees nothing
_KEPT_BYTES = 256 * 1024  # of each file, for the causes of ends
_RECENT_BYTES = 4 << 20


def local_rank(name: str) -> Optional[int]:
    """Return whose output a file is; None for the launcher's."""
    match = _RANK_FILE.fullmatch(name)
    if match:
        return int(match[1])
    match = _DEEPSPEED_FILE.fullmatch(name)
    return int(match[2]) - int(match[1]) if match else None


def own_files(folder: str, rank: int) -> List[str]:
    """Paths, below a folder of logs, of the files with the output of the host's rank of that number."""
    paths = (os.path.join(place, file) for place, _, files in os.walk(folder) for file in files)
    return [path for path in paths if local_rank(path) == rank]


def shown_files(job: JobFolder, rank: Optional[int] = None) -> List[str]:
    """Names of those in which each line stands once; of one rank's, and of those where it may be, with `rank`."""
    rank_files = [name for name, only in _rank_files(job) if only and rank in (None, local_rank(name))]
    return [COMMON, *rank_files]


def _rank_files(job: JobFolder) -> Iterator[Tuple[str, bool]]:
    marked: List[str] = []
    for folder, folders, files in os.walk(job.at("ranks")):
        folders.sort()
        if _ONLY_COPY in files:
            marked.append(folder)
        for file in sorted(files):
            name = os.path.relpath(os.path.join(folder, file), job.path)
            if local_rank(name) is not None:
                yield name, any(folder.startswith(above + os.sep) for above in marked)


class Row(NamedTuple):
    """Hold a time, and the sizes of the files that had changed since the row before."""

    time: float
    sizes: Dict[str, int]


def rows(job: JobFolder, *, recent: bool = False) -> Iterator[Row]:
    """Yield when what had come; nothing if nobody kept an account. With `recent`, the last of a long one."""
    path = job.at(_INDEX)
    state = _stat(path)
    if state is None:
        return
    names: Dict[str, str] = {}
    at, skip_to = 0, state.st_size - _RECENT_BYTES if recent else 0
    with open(path, encoding="utf-8") as file:
        for line in file:
            at += len(line)
            if line.startswith("+"):
                number, _, name = line[1:].rstrip("\n").partition(" ")
                names[number] = name
            elif at >= skip_to and line.endswith("\n"):
                row = _row(line, names)
                if row is not None:
                    yield row


def _row(line: str, names: Dict[str, str]) -> Optional[Row]:
    try:
        moment, *fields = line.split()
        pairs = (word.split(":") for word in fields)
        return Row(float(moment), {names[number]: int(size) for number, size in pairs})
    except (ValueError, KeyError):
        return None


class Keeper:
    """Keeps the account of a running job's output, and its size below the limit."""

    def __init__(self, job: JobFolder, limit_mib: int = 1024) -> None:
        self._job, self._limit_bytes = job, limit_mib << 20
        self._numbers: Dict[str, int] = {}
        self._sizes: Dict[str, int] = {}
        self._can_drop = True
        for row in rows(job):  # of the attempts before
            self._sizes.update(row.sizes)

    def tend(self) -> None:
        """Write down what has come since the last time, and make room."""
        names = [COMMON, *(name for name, _ in _rank_files(self._job))]
        states = {name: state for name in names if (state := _stat(self._job.at(name))) is not None}
        changed = {name: state.st_size for name, state in states.items() if state.st_size != self._sizes.get(name, 0)}
        if changed:
            self._note(changed)
        taken = {name: state.st_blocks * 512 for name, state in states.items()}
        if self._can_drop and sum(taken.values()) > self._limit_bytes:
            self._make_room(taken)

    @property
    def size(self) -> int:
        """The bytes that had come at the last look."""
        return sum(self._sizes.values())

    def _note(self, changed: Dict[str, int]) -> None:
        lines = ""
        for name in changed:
            if name not in self._numbers:
                self._numbers[name] = len(self._numbers)
                lines += f"+{self._numbers[name]} {name}\n"
        lines += " ".join([f"{time.time():.1f}", *(f"{self._numbers[name]}:{size}" for name, size in changed.items())])
        handle = os.open(self._job.at(_INDEX), os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            os.write(handle, f"{lines}\n".encode())
        finally:
            os.close(handle)
        self._sizes.update(changed)

    def _make_room(self, taken: Dict[str, int]) -> None:
        over = sum(taken.values()) - self._limit_bytes + self._limit_bytes // 8
        for name in sorted(taken, key=lambda name: -taken[name]):
            part = min(over, taken[name] - _KEPT_BYTES) // _BLOCK_BYTES * _BLOCK_BYTES
            if part > 0:
                self._drop(name, self._sizes.get(name, 0) - taken[name] + part)
                over -= part

    def _drop(self, name: str, end: int) -> None:
        from . import syscalls  # brings ctypes, which who reads has no use for

        try:
            handle = os.open(self._job.at(name), os.O_WRONLY | os.O_CLOEXEC)
            try:
                syscalls.punch_hole(handle, end // _BLOCK_BYTES * _BLOCK_BYTES)
            finally:
                os.close(handle)
        except OSError as error:
            if error.errno not in (errno.EOPNOTSUPP, errno.ENOSYS, errno.EPERM):
                raise
            self._can_drop = False
            sys.stderr.write(f"the output is not kept below its limit: its file system takes no holes ({error})\n")


def tail(path: str, most_bytes: int, begin: int = 0) -> str:
    """Return the last bytes of a file as text, from `begin` on; "" if it cannot be read."""
    try:
        with open(path, "rb") as file:
            file.seek(max(begin, os.fstat(file.fileno()).st_size - most_bytes, 0))
            return file.read().decode(errors="replace")
    except OSError:
        return ""


def size(path: str) -> int:
    """Return how long a file is; 0 if there is none."""
    state = _stat(path)
    return 0 if state is None else state.st_size


def _stat(path: str) -> Optional[os.stat_result]:
    try:
        return os.stat(path)
    except OSError:
        return None
