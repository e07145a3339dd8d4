# SPDX-License-Identifier: Apache-2.0
"""The lock of a node, for plays and for `nodectl` itself, whose payload has this file too: they exclude each other.

The lock is the kernel's (flock). A process of ours holds it from one task of a play to the next. It ends when it is
told to, and some time after the connection that started it has gone: what a killed run leaves means nothing then.
"""

from __future__ import annotations

import fcntl
import glob
import json
import os
import pwd
import re
import signal
import stat
import subprocess
import sys
import time
from contextlib import suppress
from typing import Any

# where every login may write and none may remove what is another's; the first that is so
COMMON_FOLDERS = ("/run/lock", "/tmp")  # noqa: S108 - one name for all is meant
LONGEST = 4096
WAIT_S = 5.0
POLL_S = 0.1
# a connection that nothing uses is closed by ssh after a minute; other hosts may keep a run busy for longer
GRACE_S = 900
# keeps the lock until another token stands in its login's claim, or nobody is connected any more
_HOLD = """
import json, sys, time
claim, token, grace_s = sys.argv[2], sys.argv[3], float(sys.argv[4])
def started(pid):
    try:
        with open("/proc/%d/stat" % pid) as stat:
            return stat.read().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""
seen, at = None, time.monotonic()
while True:
    try:
        with open(claim, "rb") as file:
            holder = json.loads(file.read(4096).decode())
    except (OSError, ValueError):
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


def host_name() -> str:
    """Return the host's name as a part of a file's."""
    return re.sub(r"[^A-Za-z0-9.-]", "_", os.uname().nodename) or "_"


def lock_path(folders: tuple[str, ...] = ()) -> str | None:
    """Return the lock's path, the same for every login; None if there is no folder for it."""
    for folder in folders or COMMON_FOLDERS:
        if os.path.isdir(folder) and os.stat(folder).st_mode & 0o1002 == 0o1002:
            return os.path.join(folder, "nodectl-%s.lock" % host_name())
    return None


def take(path: str, mine: dict[str, Any], stale: str = "", grace_s: float = GRACE_S) -> dict[str, Any] | None:
    """Return None once the run holds it, else who has it; a holder whose token is `stale` has ended: it is relieved."""
    file = open_lock(path)
    try:
        until = time.monotonic() + WAIT_S
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                holders = claims(path)
            ours = [claim for claim in holders if claim["uid"] == os.geteuid() and claim.get("token") == mine["token"]]
            if ours:  # an earlier play of the run took it
                write_claim(path, {**mine, **{name: ours[0].get(name) for name in ("since", "pid", "start")}})
                return None
            if stale and any(relieve(claim) for claim in holders if claim.get("token") == stale):
                until = time.monotonic() + WAIT_S
            elif time.monotonic() > until:
                return holders[0] if holders else {"unknown": path}
            time.sleep(POLL_S)
        argv = [
            sys.executable,
            "-c",
            _HOLD,
            str(file),
            claim_path(path, os.geteuid()),
            str(mine["token"]),
            str(grace_s),
        ]
        quiet = subprocess.DEVNULL
        write_claim(path, {**mine, "pid": 0})  # what a former holder left there would end the new one
        keeper = subprocess.Popen(  # it is nobody's child soon
            argv, stdin=quiet, stdout=quiet, stderr=quiet, pass_fds=(file,), start_new_session=True, cwd="/"
        )
        write_claim(path, {**mine, "pid": keeper.pid, "start": started(keeper.pid)})
        return None
    finally:
        os.close(file)


def let_go(path: str, token: str) -> None:
    """Free what this run holds before this returns; what another holds stays."""
    ours = [claim for claim in claims(path) if claim["uid"] == os.geteuid() and claim.get("token") == token]
    if not ours or not relieve(ours[0]):
        return
    until = time.monotonic() + WAIT_S
    while started(ours[0]["pid"]) == ours[0]["start"] and time.monotonic() < until:
        time.sleep(POLL_S)


def claim_path(path: str, uid: int) -> str:
    """Return where a login says who it holds the lock for: one file a login, that only it can write."""
    return "%s.%d" % (path, uid)


def claims(path: str) -> list[dict[str, Any]]:
    """Return what logins say whose process lives, newest first; `login` is the file's owner, whatever stands in it."""
    living = []
    for place in glob.glob(glob.escape(path) + ".*"):
        try:
            file = os.open(place, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError:
            continue
        try:
            status, claim = os.fstat(file), holder_of(file)
        finally:
            os.close(file)
        pid, start, since = claim.get("pid"), claim.get("start"), claim.get("since")
        by_owner = stat.S_ISREG(status.st_mode) and place == claim_path(path, status.st_uid)
        if by_owner and isinstance(pid, int) and pid > 1 and start and started(pid) == start:
            since = since if isinstance(since, (int, float)) else 0
            living.append({**claim, "since": since, "uid": status.st_uid, "login": _login(status.st_uid)})
    return sorted(living, key=lambda claim: claim["since"], reverse=True)


def relieve(claim: dict[str, Any]) -> bool:
    """End the process that a login's claim names, where it is that login's; False if this login may not."""
    try:
        with open("/proc/%d/status" % claim["pid"], encoding="utf-8", errors="replace") as text:
            uids = [line.split()[2] for line in text if line.startswith("Uid:")]
        if uids != [str(claim["uid"])]:
            return False
        os.kill(claim["pid"], signal.SIGTERM)
    except (OSError, IndexError):
        return False
    return True


def write_claim(path: str, claim: dict[str, Any]) -> None:
    """Say who holds the lock, as this login; if that cannot be written the lock holds without it."""
    place = claim_path(path, os.geteuid())
    aside = "%s.new%d" % (place, os.getpid())
    with suppress(OSError):
        file = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        try:
            os.fchmod(file, 0o644)
            os.write(file, json.dumps(claim).encode()[:LONGEST])
        finally:
            os.close(file)
        os.replace(aside, place)


def _login(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def started(pid: int) -> str:
    """Return when a process started, in the kernel's ticks; empty if there is none."""
    try:
        with open("/proc/%d/stat" % pid, encoding="utf-8", errors="replace") as text:
            return text.read().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""


def connection() -> tuple[int, str]:
    """Return the nearest process above us that is a login's sshd, or Ansible's own, and its start; (0, "") for none."""
    pid, nearest = os.getppid(), (0, "")
    while pid > 1:
        try:
            with open("/proc/%d/stat" % pid, encoding="utf-8", errors="replace") as text:
                head, _bracket, rest = text.read().rpartition(")")
            with open("/proc/%d/cmdline" % pid, encoding="utf-8", errors="replace") as text:
                cmdline = text.read()
        except OSError:
            break
        name, fields = head.partition("(")[2], rest.split()
        if name.startswith("sshd"):
            return pid, fields[19]
        if "ansible" in cmdline.replace("\0", " "):
            nearest = (pid, fields[19])
        pid = int(fields[1])
    return nearest


def holder_of(file: int) -> dict[str, Any]:
    """Return what the holder has written; nothing if it had no room to."""
    try:
        holder = json.loads(os.pread(file, LONGEST, 0).decode())
    except (OSError, ValueError):
        return {}
    return holder if isinstance(holder, dict) else {}


class NoLockError(Exception):
    """Something else lies in the lock's place; `remedy` says how it goes."""

    def __init__(self, text: str, remedy: str) -> None:
        super().__init__(text)
        self.remedy = remedy


def open_lock(path: str) -> int:
    """Open what everybody may lock and nobody else may write; NoLockError where something else is there."""
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        file = os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o644)
        os.fchmod(file, 0o644)
        return file
    except FileExistsError:
        refuse_other(path)
        # not with O_CREAT: fs.protected_regular keeps even root from files of others then
        return os.open(path, flags | os.O_NONBLOCK)


def refuse_other(path: str) -> None:
    """Raise NoLockError if the lock's place has something else than a plain file that everybody may read."""
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        return
    mode, what = status.st_mode, ""
    if stat.S_ISLNK(mode):
        what = "is a link to %s" % one_line(os.readlink(path))
    elif not stat.S_ISREG(mode) or status.st_nlink != 1:
        what = "has another name too" if stat.S_ISREG(mode) else "is not a plain file"
    elif not os.access(path, os.R_OK):
        what = "may not be read"
    if what:
        text = "the machine's lock %s %s, and is of login %s" % (path, what, _login(status.st_uid))
        raise NoLockError(text, "remove it: as root or that login there, `rm -r %s`" % path)


def one_line(value: Any, most: int = 200) -> str:
    """Return what another login wrote, as one line of bounded length: what is no plain character is spelled out."""
    text = str(value)
    shown = "".join(char if char.isprintable() else repr(char)[1:-1] for char in text[:most])
    return shown if len(text) <= most else shown + "…"
