"""The few Linux calls that Python has no name for, or not in all versions."""

from __future__ import annotations

import ctypes
import os
import signal

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_FALLOC_FL_KEEP_SIZE, _FALLOC_FL_PUNCH_HOLE = 1, 2
_PIDFD_OPEN = 434  # on every architecture of Linux 5.3 and later

_LIBC = ctypes.CDLL(None, use_errno=True)


def _check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def die_with_parent() -> None:
    """SIGKILL for this process when the thread that forked it ends."""
    _check(_LIBC.prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0), "prctl")


def become_subreaper() -> None:
    """Orphans among the descendants become children of this process."""
    _check(_LIBC.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0), "prctl")


def process_handle(pid: int) -> int:
    """Return a handle that becomes readable when the process ends; -1 if the kernel has none, or no such process."""
    return int(_LIBC.syscall(_PIDFD_OPEN, pid, 0))


def punch_hole(handle: int, end: int) -> None:
    """Give the beginning of a file, up to `end`, back to its file system; what is behind keeps its place."""
    begin, size = ctypes.c_int64(0), ctypes.c_int64(end)
    _check(_LIBC.fallocate(handle, _FALLOC_FL_PUNCH_HOLE | _FALLOC_FL_KEEP_SIZE, begin, size), "fallocate")
