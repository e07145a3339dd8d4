"""The job's own cgroup v2 group: made where one may be made, emptied in one write; and a systemd scope around it."""

from __future__ import annotations

import contextlib
import os
import pwd
import subprocess
import sys
import time
from typing import List, Optional, Set

_ATTEMPTS = 5
_TRIES, _RETRY_S = 50, 0.01


def create(name: str) -> Optional[str]:
    """Return the path of a new, writable group of this name for a job; None if this login may not make one."""
    parent = _own_group()
    if parent is None:
        return None
    top = os.path.join(parent, "nodectl")
    path = os.path.join(top, name)
    if not _make(path):
        return None
    writable = all(os.access(os.path.join(group, "cgroup.procs"), os.W_OK) for group in (parent, path))
    if not writable or not os.path.exists(os.path.join(path, "cgroup.kill")):
        remove(path)
        return None
    return path


def _make(path: str) -> bool:
    for _ in range(_ATTEMPTS):  # a job that ends meanwhile may remove the common parent
        try:
            os.makedirs(path, exist_ok=True)
            return True
        except FileNotFoundError:
            continue
        except OSError:
            return False
    return False


def _own_group() -> Optional[str]:
    """Return this process's group: root's lies at the top, out of a login session's reach; others' below their own."""
    mount = mount_point()
    if mount is None or os.geteuid() == 0:
        return mount
    with open("/proc/self/cgroup", encoding="utf-8") as file:
        for line in file:
            if line.startswith("0::/"):
                return os.path.join(mount, line[4:].strip())
    return None


def mount_point() -> Optional[str]:
    """Return where cgroup v2 is mounted; None if it is not."""
    with open("/proc/self/mounts", encoding="utf-8") as file:
        for line in file:
            fields = line.split()
            if fields[2] == "cgroup2":
                return fields[1]
    return None


def join(path: str) -> None:
    """Move this process, and so all that it will start, into the group."""
    with open(os.path.join(path, "cgroup.procs"), "w", encoding="ascii") as file:
        file.write("0")


def members(path: str) -> Set[int]:
    """Return the pids in the group and in groups below it; empty if the group is gone."""
    pids: Set[int] = set()
    for folder, _, _ in os.walk(path):
        try:
            with open(os.path.join(folder, "cgroup.procs"), encoding="ascii") as file:
                pids.update(int(line) for line in file)
        except OSError:
            continue
    return pids - {0}


def kill(path: str) -> None:
    """Send SIGKILL to every process of the group at once; a missing group is no error."""
    with contextlib.suppress(FileNotFoundError), open(os.path.join(path, "cgroup.kill"), "w", encoding="ascii") as file:
        file.write("1")


def remove(path: str) -> None:
    """Remove the empty group, the groups below it, and the common parent after the last job."""
    for folder, _, _ in os.walk(path, topdown=False):
        if not _remove_one(folder):
            return
    with contextlib.suppress(OSError):
        os.rmdir(os.path.dirname(path))


def _remove_one(folder: str) -> bool:
    """Remove a group, and try again while killed processes are still leaving it; False if it stays."""
    for _ in range(_TRIES):
        try:
            os.rmdir(folder)
            return True
        except FileNotFoundError:
            return True
        except OSError:
            time.sleep(_RETRY_S)
    return False


_LINGER = "/var/lib/systemd/linger"
_MARK = "NODECTL_IN_SCOPE"
_TRY_S = 5.0


def enter_scope(name: str) -> None:
    """Execute this program again inside `nodectl-NAME.scope`; return if that is impossible or already done."""
    program = os.path.abspath(sys.argv[0])
    if os.environ.pop(_MARK, None) or os.geteuid() == 0 or not lingers() or not os.path.isfile(program):
        return
    os.environ.setdefault("XDG_RUNTIME_DIR", f"/run/user/{os.geteuid()}")  # a command over SSH may lack it
    if _scope_works():
        flags = ["-S"] if sys.flags.no_site else []
        argv = [*_scope_argv(f"--unit=nodectl-{name}.scope"), sys.executable, *flags, program, *sys.argv[1:]]
        os.execvpe(argv[0], argv, {**os.environ, _MARK: "1"})  # noqa: S606 - an argv, and no shell is the point


def _scope_argv(*more: str) -> List[str]:
    return ["systemd-run", "--user", "--scope", "--quiet", "--collect", *more, "--"]


def _scope_works() -> bool:
    """Tell whether the manager makes scopes: asked before this program is given up for it."""
    nowhere = subprocess.DEVNULL
    try:
        return not subprocess.call(
            [*_scope_argv(), "true"], stdin=nowhere, stdout=nowhere, stderr=nowhere, timeout=_TRY_S
        )
    except (OSError, subprocess.TimeoutExpired):
        return False


def lingers() -> bool:
    """Tell whether the login's own manager outlives its sessions."""
    try:
        return os.path.exists(os.path.join(_LINGER, pwd.getpwuid(os.geteuid()).pw_name))
    except KeyError:
        return False
