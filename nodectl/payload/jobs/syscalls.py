"""The few Linux calls that Python has no name for, or not in all versions."""

from __future__ import annotations

import ctypes
import os
import signal
from typing import Dict

CLONE_NEWNS, CLONE_NEWPID = 0x00020000, 0x20000000
MS_BIND, MS_REC, MS_PRIVATE = 4096, 16384, 1 << 18
MS_NOSUID, MS_NODEV, MS_NOEXEC = 2, 4, 8
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36

_FALLOC_FL_KEEP_SIZE, _FALLOC_FL_PUNCH_HOLE = 1, 2
_PIDFD_OPEN = 434  # on every architecture of Linux 5.3 and later

_LIBC = ctypes.CDLL(None, use_errno=True)


def _check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def unshare(flags: int) -> None:
    """Leave the namespaces named by `flags`."""
    _check(_LIBC.unshare(flags), "unshare")


def mount(source: str, target: str, kind: str, flags: int) -> None:
    """Mount a file system, without data for it."""
    _check(_LIBC.mount(os.fsencode(source), os.fsencode(target), kind.encode(), ctypes.c_ulong(flags), None), "mount")


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


def hold_room(handle: int, begin: int, size: int) -> None:
    """Give a file room on the disk from `begin` on, without making it longer."""
    arguments = (ctypes.c_int64(begin), ctypes.c_int64(size))
    _check(_LIBC.fallocate(handle, _FALLOC_FL_KEEP_SIZE, *arguments), "fallocate")


def mount_fresh_proc() -> None:
    """Take a mount namespace with a /proc of this pid namespace, and with what lay mounted below the old one."""
    unshare(CLONE_NEWNS)
    below = _proc_mounts()
    mount("none", "/", "", MS_REC | MS_PRIVATE)
    mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC)
    for path, handle in below.items():  # read-only and masked parts stay so: a bind keeps the mount's flags
        mount(f"/proc/self/fd/{handle}", path, "", MS_BIND)
        os.close(handle)


def _proc_mounts() -> Dict[str, int]:
    handles = {}
    with open("/proc/self/mountinfo", encoding="utf-8") as file:
        for line in file:
            fields, _, rest = line.partition(" - ")
            path, kind = fields.split()[4], rest.split()[0]
            if path.startswith("/proc/") and kind not in ("autofs", "binfmt_misc"):
                handles[path] = os.open(path, os.O_PATH | os.O_CLOEXEC)
    return handles
