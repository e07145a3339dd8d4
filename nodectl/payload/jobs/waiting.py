"""Tells by /proc in which system call a process waits, and for which file or process; and what its children do."""

from __future__ import annotations

import contextlib
import os
import platform
from typing import Any, Dict, List

from .process import below, read_cmdline, read_stat, read_text

_MOST_HELPERS = 16
_COMMAND_CHARS = 80
_PATH_BYTES = 256
# of the kernel's own processes and multiprocessing's: they wait by design
_BY_DESIGN = ("multiprocessing.resource_tracker", "multiprocessing.forkserver")

# calls whose first argument is a file, whose second is a path, and others
_OF_FILE, _OF_PATH, _OF_PROCESS, _PLAIN = "file", "path", "process", ""
_KINDS = {
    **dict.fromkeys(("read", "write", "pread64", "pwrite64", "readv", "writev", "fcntl", "flock", "fsync"), _OF_FILE),
    **dict.fromkeys(("fdatasync", "ioctl", "getdents64", "recvfrom", "recvmsg", "sendto", "connect"), _OF_FILE),
    **dict.fromkeys(("openat", "newfstatat", "statx", "mkdirat", "unlinkat", "renameat2"), _OF_PATH),
    **dict.fromkeys(("wait4", "waitid"), _OF_PROCESS),
}
# as asm/unistd_64.h and asm-generic/unistd.h number them
_X86_64 = (
    "0 read 1 write 7 poll 16 ioctl 17 pread64 18 pwrite64 19 readv 20 writev 23 select 35 nanosleep 42 connect 44"
    " sendto 45 recvfrom 47 recvmsg 61 wait4 72 fcntl 73 flock 74 fsync 75 fdatasync 202 futex 217 getdents64 230"
    " clock_nanosleep 232 epoll_wait 247 waitid 257 openat 258 mkdirat 262 newfstatat 263 unlinkat 270 pselect6 271"
    " ppoll 281 epoll_pwait 316 renameat2 332 statx"
)
_ARM64 = (
    "22 epoll_pwait 25 fcntl 29 ioctl 32 flock 34 mkdirat 35 unlinkat 56 openat 61 getdents64 63 read 64 write 65 readv"
    " 66 writev 67 pread64 68 pwrite64 72 pselect6 73 ppoll 79 newfstatat 82 fsync 83 fdatasync 95 waitid 98 futex 101"
    " nanosleep 115 clock_nanosleep 203 connect 206 sendto 207 recvfrom 212 recvmsg 260 wait4 276 renameat2 291 statx"
)


def _names() -> Dict[str, str]:
    words = {"x86_64": _X86_64, "aarch64": _ARM64}.get(platform.machine(), "").split()
    return dict(zip(words[::2], words[1::2]))  # noqa: B905 - Python 3.8


def call(pid: int) -> str:
    """Return the call of a process's main thread, `read() of /data/x`; else if it waits in the kernel, or ""."""
    with contextlib.suppress(OSError, ValueError, KeyError):
        with open(f"/proc/{pid}/syscall", encoding="ascii") as file:
            words = file.read().split()
        name = "" if words[0] == "running" else _names()[words[0]]
        return name and f"{name}(){_object(pid, name, [int(word, 16) for word in words[1:3]])}"
    return read_text(f"/proc/{pid}/wchan").strip("0")


def _object(pid: int, name: str, args: List[int]) -> str:
    kind = _KINDS.get(name, _PLAIN)
    with contextlib.suppress(OSError):
        if kind == _OF_FILE:
            return f" of {os.readlink(f'/proc/{pid}/fd/{args[0]}')}"
        if kind == _OF_PATH:
            with open(f"/proc/{pid}/mem", "rb", 0) as memory:
                memory.seek(args[1])
                return f" of {os.fsdecode(memory.read(_PATH_BYTES).partition(bytes(1))[0])}"
        child = args[name == "waitid"] & 0xFFFFFFFF
        if kind == _OF_PROCESS and 0 < child < 1 << 31 and command(child):  # a container has numbers of its own
            return f" of process {child} ({command(child)})"
    return ""


def command(pid: int) -> str:
    """Return a process's program and its first argument that is no option: more may be no other's business."""
    program, *args = read_cmdline(pid) or [""]
    words = [os.path.basename(program), *[word for word in args if not word.startswith("-")][:1]]
    return " ".join(words)[:_COMMAND_CHARS]


def helpers(pid: int) -> List[Dict[str, Any]]:
    """Return rows of a rank's living children and theirs: `pid`, `state`, `command` and `call`."""
    rows: List[Dict[str, Any]] = []
    for child in sorted(below(pid, set())):
        stat = read_stat(child)
        if stat is not None and not any(name in " ".join(read_cmdline(child)) for name in _BY_DESIGN):
            rows.append({"pid": child, "state": stat.state, "command": command(child), "call": call(child)})
    return rows[:_MOST_HELPERS]
