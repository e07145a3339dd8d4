"""Segments in /dev/shm that a job's processes have mapped: a killed process cannot remove its own."""

from __future__ import annotations

import contextlib
import os
import re
from typing import Iterable, Iterator, Set, Tuple

from ..common.patterns import lazily
from .process import all_pids

_FOLDER = "/dev/shm/"  # noqa: S108 - looked at, never written to
# what libraries name so holds messages; a file of the user's own there is data, which may be meant to stay
_MADE_BY_LIBRARIES = (
    "nccl-",
    "torch_",
    "psm_",
    "sem.mp-",
    "sem.loky-",
    "cuda.shm.",
    "vader_segment.",
    "__KMP_REGISTERED",
)
_MAPPED = lazily(r"^\S+ \S+ \S+ [0-9a-f]+:[0-9a-f]+ (\d+) +/dev/shm/([^/\n]+)$", re.MULTILINE)

Segment = Tuple[str, int]


def mapped_by(pids: Iterable[int]) -> Set[Segment]:
    """Name and inode of each segment of a library's making that these processes have mapped.

    By inode: who made a semaphore has it mapped by the name of a temporary file, which is gone.
    """
    inodes = {inode for pid in pids for inode in _mapped(pid)}
    return {(name, inode) for name, inode, _ in _segments() if inode in inodes}


def _mapped(pid: int) -> Iterator[int]:
    try:
        with open(f"/proc/{pid}/maps", encoding="utf-8", errors="surrogateescape") as file:
            text = file.read()
    except OSError:
        return
    if _FOLDER in text:
        yield from (int(inode) for inode, _ in _MAPPED.findall(text))


def _segments() -> Iterator[Tuple[str, int, int]]:
    """Name, inode and owner of each of a library's making."""
    with contextlib.suppress(OSError):  # a machine without /dev/shm
        for entry in os.scandir(_FOLDER):
            if entry.name.startswith(_MADE_BY_LIBRARIES):
                with contextlib.suppress(FileNotFoundError):
                    stat = entry.stat(follow_symlinks=False)
                    yield entry.name, stat.st_ino, stat.st_uid


def present() -> Set[Segment]:
    """All segments of a library's making that this login has there now."""
    return {(name, inode) for name, inode, owner in _segments() if owner == os.geteuid()}


def remove_forsaken(before: Set[Segment]) -> None:
    """Remove what came since and nobody has mapped, as of a rank that was killed alone.

    Not while anybody works with such segments: between two that hand one on, nobody has it mapped for a moment.
    """
    came = present() - before
    if came and not mapped_by(all_pids()):
        _unlink(came)


def remove(segments: Set[Segment]) -> None:
    """Remove those that no living process has mapped; another job of this login may have taken one up."""
    if segments:
        _unlink(segments - mapped_by(all_pids()))


def _unlink(segments: Iterable[Segment]) -> None:
    for name, inode in segments:
        path = _FOLDER + name
        with contextlib.suppress(OSError):
            if os.lstat(path).st_ino == inode:
                os.unlink(path)
