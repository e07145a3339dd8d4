"""The Linux calls that Python 3.11 has no name for: mounts, namespaces, capabilities, and the kernel log's lock."""

import ctypes
import os
import platform
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

MS_RDONLY, MS_NOSUID, MS_NODEV, MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = 1, 2, 4, 32, 4096, 16384, 1 << 18
MNT_DETACH = 2
CLONE_NEWNS, CLONE_NEWCGROUP, CLONE_NEWUTS, CLONE_NEWIPC = 0x20000, 0x2000000, 0x4000000, 0x8000000
CLONE_NEWPID, CLONE_NEWNET = 0x20000000, 0x40000000
CAP_SYS_MODULE, CAP_SYS_RAWIO, CAP_SYS_BOOT, CAP_SYS_TIME, CAP_MKNOD, CAP_SYSLOG = 16, 17, 22, 25, 27, 34

_PR_SET_TIMERSLACK, _PR_CAPBSET_DROP, _PR_SET_SECCOMP, _SECCOMP_MODE_FILTER = 29, 24, 22, 2
# machine: (audit architecture, number of syslog(2))
_SYSLOG_CALL = {"x86_64": (0xC000003E, 103), "aarch64": (0xC00000B7, 116)}

_libc = ctypes.CDLL(None, use_errno=True)


def mount(source: str, target: str, fstype: str | None = None, flags: int = 0, data: str | None = None) -> None:
    """Mount a file system; the OSError names the target."""
    result = _libc.mount(
        os.fsencode(source),
        os.fsencode(target),
        fstype.encode() if fstype else None,
        ctypes.c_ulong(flags),
        os.fsencode(data) if data else None,
    )
    _check(result, f"mount {fstype or source} on {target}")


def bind(source: str, target: str, *, read_only: bool = False) -> None:
    """Show `source` at `target` too."""
    mount(source, target, None, MS_BIND)
    if read_only:
        mount("none", target, None, MS_REMOUNT | MS_BIND | MS_RDONLY)


def unmount(target: str, flags: int = 0) -> None:
    """umount2(2); OSError names the target."""
    _check(_libc.umount2(os.fsencode(target), flags), f"unmount {target}")


def pivot_root(new_root: str) -> None:
    """Make `new_root` the root of this mount namespace and let go of the old one."""
    os.chdir(new_root)
    _check(_libc.pivot_root(b".", b"."), f"pivot_root {new_root}")
    unmount(".", MNT_DETACH)
    os.chdir("/")


def unshare(flags: int) -> None:
    """Leave the namespaces that `flags` name."""
    _check(_libc.unshare(flags), f"unshare {flags:#x}")


def setns(descriptor: int, kind: int) -> None:
    """Enter the namespace of this `kind` behind the descriptor."""
    _check(_libc.setns(descriptor, kind), "setns")


@contextmanager
def leaving(kind: int) -> Iterator[None]:
    """Let the block leave its network (CLONE_NEWNET) or its children's PID namespace (CLONE_NEWPID); then come back."""
    name = {CLONE_NEWNET: "net", CLONE_NEWPID: "pid"}[kind]
    with Path(f"/proc/self/ns/{name}").open("rb") as namespace:
        try:
            yield
        finally:
            setns(namespace.fileno(), kind)


@contextmanager
def inside_network(path: Path | str) -> Iterator[None]:
    """Run the block, and what it starts, in the network namespace that `path` names."""
    with leaving(CLONE_NEWNET):
        with Path(path).open("rb") as other:
            setns(other.fileno(), CLONE_NEWNET)
        yield


def drop_capability(number: int) -> None:
    """Take a capability from this process's bounding set, for good."""
    _check(_libc.prctl(_PR_CAPBSET_DROP, ctypes.c_ulong(number), 0, 0, 0), f"drop capability {number}")


def precise_timers() -> None:
    """Let sleeps end when they should (1 ns of slack instead of 50 µs)."""
    _libc.prctl(_PR_SET_TIMERSLACK, ctypes.c_ulong(1), 0, 0, 0)


def forbid_kernel_log() -> None:
    """Make syslog(2) fail with EPERM here and in every child: the kernel's log is not the host's own."""
    if platform.machine() not in _SYSLOG_CALL:
        return
    architecture, number = _SYSLOG_CALL[platform.machine()]
    program = b"".join(
        struct.pack("HBBI", *instruction)
        for instruction in (
            (0x20, 0, 0, 4),  # load the architecture
            (0x15, 0, 3, architecture),  # another one: allow
            (0x20, 0, 0, 0),  # load the call's number
            (0x15, 0, 1, number),
            (0x06, 0, 0, 0x00050001),  # errno EPERM
            (0x06, 0, 0, 0x7FFF0000),  # allow
        )
    )
    code = ctypes.create_string_buffer(program, len(program))
    header = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(code)))
    _check(_libc.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, header, 0, 0), "seccomp")


def _check(result: int, what: str) -> None:
    if result != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{what}: {os.strerror(code)}")
