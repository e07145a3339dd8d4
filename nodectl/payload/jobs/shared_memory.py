"""Segments in /dev/shm that a job's processes had mapped: a killed process cannot remove its own."""

from __future__ import annotations

import contextlib
import math
import os
import re
from typing import Iterable, Iterator, Set, Tuple

from ..common.patterns import lazily
from .process import all_pids, read_text

_FOLDER = "/dev/shm/"  # noqa: S108 - looked at, never written to
# what libraries name so holds messages; a file of the user's own there is data, which may be meant to stay
_OF_PYTHON = ("psm_", "sem.mp-", "sem.loky-")
_PREFIXES = (*_OF_PYTHON, "nccl-", "torch_", "cuda.shm.", "vader_segment.", "__KMP_REGISTERED")
# names that libraries give: who leaves `torch_dataset` there means it to stay
_FORSAKEN = lazily(r"nccl-\w{6}|torch_[0-9a-f-]+(_[0-9]+)+|cuda\.shm\..+|vader_segment\..+|__KMP_REGISTERED.+")
_MAPPED = lazily(r"^\S+ \S+ \S+ [0-9a-f]+:[0-9a-f]+ (\d+) +/dev/shm/([^/\n]+)$", re.MULTILINE)

Segment = Tuple[str, int]


def mapped_by(pids: Iterable[int]) -> Set[Segment]:
    """Return name and inode of each library-made segment that these processes have mapped.

    They are compared by inode: a semaphore's maker has it mapped under the name of a temporary file that is gone.
    """
    inodes = {int(match[0]) for pid in pids for match in _MAPPED.findall(read_text(f"/proc/{pid}/maps"))}
    return {(name, inode) for name, stat in _segments() if (inode := stat.st_ino) in inodes}


def _segments() -> Iterator[Tuple[str, os.stat_result]]:
    with contextlib.suppress(OSError):  # a machine without /dev/shm
        for entry in os.scandir(_FOLDER):
            if entry.name.startswith(_PREFIXES):
                with contextlib.suppress(FileNotFoundError):
                    yield entry.name, entry.stat(follow_symlinks=False)


def present(before_s: float = math.inf) -> Set[Segment]:
    """Return this login's library-made segments that were last changed before a time."""
    mine = ((name, stat) for name, stat in _segments() if stat.st_uid == os.geteuid())
    return {(name, stat.st_ino) for name, stat in mine if stat.st_ctime < before_s}


def remove_forsaken(before: Set[Segment]) -> None:
    """Remove segments that came after `before`, bear a library's name and are mapped by nobody: a killed rank's.

    Python's stay: while two processes hand one on, nobody has it mapped. So do all while a program works with some.
    """
    came = {segment for segment in present() - before if _FORSAKEN.fullmatch(segment[0])}
    if came and not mapped_by(all_pids()):
        _unlink(came)


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
