"""Segments in /dev/shm that a job's processes had mapped: a killed process cannot remove its own."""

from __future__ import annotations

import contextlib
import math
import os
import re
from typing import Iterable, Iterator, Set, Tuple

from ..common.patterns import lazily
from .process import all_pids

_FOLDER = "/dev/shm/"  # noqa: S108 - looked at, never written to
_OF_PYTHON = ("/_posixshmem.", "/_multiprocessing.")
# what libraries name so holds messages; a file of the user's own there is data, which may be meant to stay.
# With it: what a process that can make such segments has loaded
_MADE_BY_LIBRARIES = {
    "nccl-": ("/libnccl", "/librccl", "/libtorch_cuda", "/libtorch_hip"),
    "torch_": ("/libtorch",),
    "psm_": _OF_PYTHON,
    "sem.mp-": _OF_PYTHON,
    "sem.loky-": _OF_PYTHON,
    "cuda.shm.": ("/libcuda.",),
    "vader_segment.": ("/libmpi", "/libopen-pal"),
    "__KMP_REGISTERED": ("/libiomp", "/libomp"),
}
_PREFIXES = tuple(_MADE_BY_LIBRARIES)
# Python with its modules built in (of conda, of uv) loads none from this folder, and may have them all
_PYTHON, _MODULES = lazily(r"/(lib)?python[\d.]*(\.so[\d.]*)?$", re.MULTILINE), "/lib-dynload/"
_MAPPED = lazily(r"^\S+ \S+ \S+ [0-9a-f]+:[0-9a-f]+ (\d+) +/dev/shm/([^/\n]+)$", re.MULTILINE)

Segment = Tuple[str, int]


def mapped_by(pids: Iterable[int]) -> Set[Segment]:
    """Return name and inode of each library-made segment that these processes have mapped.

    They are compared by inode: a semaphore's maker has it mapped under the name of a temporary file that is gone.
    """
    inodes = {inode for pid in pids for inode in _mapped(pid)}
    return {(name, inode) for name, stat in _segments() if (inode := stat.st_ino) in inodes}


def _maps(pid: int) -> str:
    """Return a process's /proc/PID/maps; "" if it is gone or belongs to another login."""
    try:
        with open(f"/proc/{pid}/maps", encoding="utf-8", errors="surrogateescape") as file:
            return file.read()
    except OSError:
        return ""


def _mapped(pid: int) -> Iterator[int]:
    text = _maps(pid)
    if _FOLDER in text:
        yield from (int(inode) for inode, _ in _MAPPED.findall(text))


def _segments() -> Iterator[Tuple[str, os.stat_result]]:
    """Yield name and status of each library-made segment."""
    with contextlib.suppress(OSError):  # a machine without /dev/shm
        for entry in os.scandir(_FOLDER):
            if entry.name.startswith(_PREFIXES):
                with contextlib.suppress(FileNotFoundError):
                    yield entry.name, entry.stat(follow_symlinks=False)


def present(made_by_s: float = math.inf) -> Set[Segment]:
    """Return this login's library-made segments that were created no later than `made_by_s` (wall-clock time)."""
    return {
        (name, stat.st_ino) for name, stat in _segments() if stat.st_uid == os.geteuid() and stat.st_ctime <= made_by_s
    }


def remove_forsaken(before: Set[Segment], made_by_s: float = math.inf) -> None:
    """Remove segments that were created after `before` and by `made_by_s` and that nobody has mapped: a killed rank's.

    Segments of a kind that a living program could make stay: while two processes hand one on, nobody has it mapped.
    """
    came = present(made_by_s) - before
    if came and not mapped_by(all_pids()):
        makers = _at_work()
        _unlink(segment for segment in came if not segment[0].startswith(makers))


def _at_work() -> Tuple[str, ...]:
    """Return the name prefixes of the segments that living programs can make."""
    kinds: Set[str] = set()
    for pid in all_pids():
        text = _maps(pid) if pid != os.getpid() else ""
        kinds |= {kind for kind, loaded in _MADE_BY_LIBRARIES.items() if _can_make(text, loaded)}
    return tuple(kinds)


def _can_make(text: str, loaded: Tuple[str, ...]) -> bool:
    is_built_in = loaded is _OF_PYTHON and _MODULES not in text and _PYTHON.search(text) is not None
    return is_built_in or any(word in text for word in loaded)


def remove(segments: Set[Segment]) -> None:
    """Remove those segments that no living process has mapped; another job of this login may use one by now."""
    if segments:
        _unlink(segments - mapped_by(all_pids()))


def _unlink(segments: Iterable[Segment]) -> None:
    for name, inode in segments:
        path = _FOLDER + name
        with contextlib.suppress(OSError):
            if os.lstat(path).st_ino == inode:
                os.unlink(path)
