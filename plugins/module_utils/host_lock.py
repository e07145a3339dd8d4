"""The lock of a node: the file and the form that `nodectl` itself locks there, so that both ways exclude each other.

The lock is the kernel's (flock). A process of ours holds it from one task of a play to the next. It ends when it is
told to, and some time after the connection that started it has gone: what a killed run leaves means nothing then.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import stat
import subprocess
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # nodes run this from Python 3.8 on
    Holder = dict[str, Any]

# as nodectl's payload has them
COMMON_FOLDERS = ("/run/lock", "/tmp")  # noqa: S108 - one name for all is meant
LONGEST = 4096
WAIT_S = 5.0
POLL_S = 0.1
# a connection that nothing uses is closed by ssh after a minute; other hosts may keep a run busy for longer
GRACE_S = 900
# sees to the file until another token stands there, or nobody is connected any more
_HOLD = """
import json, os, sys, time
fd, token, grace_s = int(sys.argv[1]), sys.argv[2], float(sys.argv[3])
def started(pid):
    try:
        with open("/proc/%d/stat" % pid) as stat:
            return stat.read().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""
seen, at = None, time.monotonic()
while True:
    try:
        holder = json.loads(os.pread(fd, 4096, 0).decode())
    except ValueError:
        holder = {"token": token}
    if holder.get("token") != token:
        sys.exit()
    pid, start = holder.get("connection") or (0, "")
    if holder.get("renewed") != seen or (start and started(pid) == start):
        seen, at = holder.get("renewed"), time.monotonic()
    if time.monotonic() - at > grace_s:
        sys.exit()
    time.sleep(0.5)
"""


def lock_path(folders: tuple[str, ...] = COMMON_FOLDERS) -> str | None:
    """The same for every login; None where there is no folder for it."""
    name = re.sub(r"[^A-Za-z0-9.-]", "_", os.uname().nodename) or "_"
    for folder in folders:
        if os.path.isdir(folder) and os.stat(folder).st_mode & 0o1002 == 0o1002:
            return os.path.join(folder, "nodectl-%s.lock" % name)
    return None


def take(path: str, mine: Holder, stale: str = "", grace_s: float = GRACE_S) -> Holder | None:
    """None once the run holds it, else who has it; the holder whose token is `stale` has ended, and is relieved."""
    file = _open(path)
    try:
        until = time.monotonic() + WAIT_S
        holder: Holder = {}
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                holder = holder_of(file)
            if holder.get("token") == mine["token"]:
                write(file, {**mine, "since": holder.get("since")})  # an earlier play of the run took it
                return None
            if stale and holder.get("token") == stale:
                write(file, {})
            elif time.monotonic() > until:
                return holder
            time.sleep(POLL_S)
        write(file, mine)
        argv = [sys.executable, "-c", _HOLD, str(file), str(mine["token"]), str(grace_s)]
        quiet = subprocess.DEVNULL
        subprocess.Popen(  # it keeps the lock, and is nobody's child soon
            argv, stdin=quiet, stdout=quiet, stderr=quiet, pass_fds=(file,), start_new_session=True, cwd="/"
        )
        return None
    finally:
        os.close(file)


def let_go(path: str, token: str) -> None:
    """What this run holds is free once this returns; what another holds stays."""
    try:
        file = _open(path)
    except OSError:
        return
    try:
        if holder_of(file).get("token") != token:
            return
        write(file, {})
        until = time.monotonic() + WAIT_S
        while time.monotonic() < until:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                time.sleep(POLL_S)
    finally:
        os.close(file)


def connection() -> tuple[int, str]:
    """The nearest process above us that is a login's sshd, or Ansible's own, and when it started; (0, "") for none."""
    pid, found = os.getppid(), (0, "")
    while pid > 1:
        try:
            with open("/proc/%d/stat" % pid, encoding="utf-8", errors="replace") as text:
                head, _bracket, rest = text.read().rpartition(")")
            with open("/proc/%d/cmdline" % pid, encoding="utf-8", errors="replace") as text:
                words = text.read()
        except OSError:
            break
        name, fields = head.partition("(")[2], rest.split()
        if name.startswith("sshd"):
            return pid, fields[19]
        if "ansible" in words.replace("\0", " "):
            found = (pid, fields[19])
        pid = int(fields[1])
    return found


def holder_of(file: int) -> Holder:
    """What the holder has written; nothing where it had no room to."""
    try:
        holder = json.loads(os.pread(file, LONGEST, 0).decode())
    except (OSError, ValueError):
        return {}
    return holder if isinstance(holder, dict) else {}


def write(file: int, holder: Holder) -> None:
    """On a full disk the lock holds without it."""
    with suppress(OSError):
        os.ftruncate(file, 0)
        os.pwrite(file, json.dumps(holder).encode()[:LONGEST], 0)


def _open(path: str) -> int:
    flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        file = os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o666)
        os.fchmod(file, 0o666)
        return file
    except FileExistsError:
        # not with O_CREAT: fs.protected_regular keeps even root from files of others then
        file = os.open(path, flags)
    if not stat.S_ISREG(os.fstat(file).st_mode) or os.fstat(file).st_nlink != 1:
        os.close(file)
        raise OSError("%s is not a plain file" % path)
    return file
