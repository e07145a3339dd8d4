# SPDX-License-Identifier: Apache-2.0
"""The lock of a node, for plays and for `nodectl` itself, whose payload has this file too: one file, one flock.

The kernel frees it when the holder's process ends. What the file says about the holder is for people only.
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

# where every login may write and none may remove another's file; the first such folder counts
COMMON_FOLDERS = ("/run/lock", "/tmp")  # noqa: S108 - one name for all is meant
TRIALS = "/run/nodectl-trial"
LONGEST = 4096
WAIT_S = 3.0
POLL_S = 0.1
# holds the descriptor that it inherits until its connection, a process and its start, has gone
_HOLD = """
import sys, time
try:
    while open("/proc/%s/stat" % sys.argv[1]).read().rpartition(")")[2].split()[19] == sys.argv[2]:
        time.sleep(0.5)
except (OSError, IndexError):
    pass
"""


def lock_path(folder: str = "") -> str | None:
    """Return the lock's path, the same for every login; None if there is no folder for it."""
    name = "nodectl-%s.lock" % (re.sub(r"[^A-Za-z0-9.-]", "_", os.uname().nodename) or "_")
    # tests have locks of their own; for other logins than root it would be a way around the lock
    named = folder or (os.environ.get("NODECTL_LOCK_FOLDER") if os.geteuid() == 0 else "")
    if named:
        return os.path.join(named, name)
    for common in COMMON_FOLDERS:
        if os.path.isdir(common) and os.stat(common).st_mode & 0o1002 == 0o1002:
            return os.path.join(common, name)
    return None


def take(path: str, mine: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    """Return (the locked file, {}), or (-1, the holder); the holder is {} if it is this very run, by its `token`."""
    file = open_lock(path)
    until = time.monotonic() + WAIT_S
    while True:
        holder = trial_left()
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = {}
            with suppress(OSError, ValueError):  # one without room to write leaves it empty
                holder = json.loads(os.pread(file, LONGEST, 0).decode())
            if not holder or not isinstance(holder, dict):
                holder = {"unknown": path}
        if not holder:
            # on a full disk it holds without a word
            with suppress(OSError):
                os.ftruncate(file, 0)
                os.pwrite(file, json.dumps({**mine, "since": time.time()}).encode()[:LONGEST], 0)
            return file, {}
        is_ours = holder.get("token") == mine["token"]
        if is_ours or time.monotonic() > until:
            os.close(file)
            return -1, {} if is_ours else holder
        fcntl.flock(file, fcntl.LOCK_UN)
        time.sleep(POLL_S)


def trial_left() -> dict[str, Any]:
    """Return whose trial's values are still on this host, as `left`: its timer has not restored them yet."""
    for path in glob.glob(os.path.join(TRIALS, "*", "about.json")):
        with suppress(OSError, ValueError), open(path, encoding="utf-8") as stream:
            about: dict[str, Any] = json.load(stream)
            return {**about, "left": True} if about else {}
    return {}


def running_jobs() -> dict[str, str]:
    """Return {id: login} of the jobs of nodectl that any login runs on this host, by their supervisors' command lines.

    A job in a container's processes is not of this host; tests have jobs of their own, as they have locks.
    """
    jobs, tests = {}, os.environ.get("NODECTL_LOCK_FOLDER") if os.geteuid() == 0 else ""
    for place in glob.glob("/proc/[0-9]*"):
        with suppress(OSError, ValueError):
            words = _read(place, "cmdline").split("\0")
            command, job, *_rest = [*words[words.index("jobs.control") + 1 :], "", ""]
            if command != "start" or not re.fullmatch(r"[a-z0-9][a-z0-9-]{0,63}", job):
                continue
            if re.search(r"^NSpid:\s*\d+\s+\d", _read(place, "status"), re.MULTILINE):
                continue
            if tests and "NODECTL_LOCK_FOLDER=" + tests not in _read(place, "environ").split("\0"):
                continue
            uid = os.stat(place).st_uid
            jobs[job] = str(uid)
            with suppress(KeyError):
                jobs[job] = pwd.getpwuid(uid).pw_name
    return jobs


def _read(place: str, name: str) -> str:
    with open(os.path.join(place, name), encoding="utf-8", errors="replace") as stream:
        return stream.read()


def hold(path: str, mine: dict[str, Any]) -> dict[str, Any]:
    """Hold it from one task of a play to the next: by a process that ends with the connection. Return the holder."""
    file, holder = take(path, mine)
    if file >= 0:
        argv = [sys.executable, "-c", _HOLD, *connection(), _mark(mine["token"])]
        quiet = subprocess.DEVNULL
        subprocess.Popen(  # it is nobody's child soon
            argv, stdin=quiet, stdout=quiet, stderr=quiet, pass_fds=(file,), start_new_session=True, cwd="/"
        )
        os.close(file)
    return holder


def claim(mine: dict[str, Any], folder: str = "", *, force: bool = False, look: bool = False) -> dict[str, Any]:
    """Hold the node for a run of plays, or `look` whether it can be held: `held`, `holder`, `warning` and `error`."""
    path = lock_path(folder)
    if path is None:
        return {"held": False}
    try:
        if look:
            refuse_other(path)
            return {"held": False}
        for job, login in running_jobs().items():
            advice = "wait for it, leave the host out with --limit, or end it: nodectl jobs stop %s" % job
            return {"held": False, "error": "this host runs nodectl's job %s of %s: %s" % (job, login, advice)}
        holder = hold(path, mine)
    except NoLockError as error:
        return {"held": False, "error": "this host cannot be locked: %s; %s" % (error, error.remedy)}
    except OSError as error:
        return {"held": False, "error": "this host cannot be locked: %s" % error}
    if not holder:
        return {"held": True}
    text, advice = told(holder)
    text = "this host is held by %s" % text
    if force:
        return {"held": False, "holder": holder, "warning": text}
    return {"held": False, "holder": holder, "error": "%s: %s" % (text, advice)}


def told(holder: dict[str, Any]) -> tuple[str, str]:
    """Return who holds the host, as the holder says, and what to do."""
    if holder.get("unknown"):
        return "a process that is no nodectl's", "as root there, `fuser -v %s` names it" % holder["unknown"]
    if holder.get("left"):
        what = one_line(holder.get("what") or "a trial")
        advice = "if its timer does not restore them in a minute, -e nodectl_force=true restores them first"
        return "values of %s, whose nodectl is gone" % what, advice
    since = holder.get("since")
    at = time.strftime(" since %Y-%m-%d %H:%M:%S UTC", time.gmtime(since)) if isinstance(since, (int, float)) else ""
    who, what = (one_line(holder.get(name) or "") for name in ("operator", "what"))
    advice = "wait until it is free, leave it out with --limit, or go on with -e nodectl_force=true"
    return "%s for '%s'%s" % (who or "another nodectl", what, at), advice


def let_go(token: str) -> None:
    """End this login's process that holds the lock for a run, before this returns."""
    for place in glob.glob("/proc/[0-9]*"):
        with suppress(OSError, ValueError):
            is_ours = os.stat(place).st_uid == os.geteuid()
            if is_ours and _read(place, "cmdline").split("\0")[-2:-1] == [_mark(token)]:
                os.kill(int(os.path.basename(place)), signal.SIGKILL)
                while os.path.exists(os.path.join(place, "exe")):
                    time.sleep(POLL_S / 10)


def _mark(token: str) -> str:
    return "nodectl-lock=" + token


def connection() -> tuple[str, str]:
    """Return the nearest process above us that is a login's sshd, or Ansible's own, and its start."""
    pid, nearest = os.getppid(), ("0", "none")
    while pid > 1:
        try:
            head, _bracket, rest = _read("/proc/%d" % pid, "stat").rpartition(")")
            programs = [os.path.basename(word) for word in _read("/proc/%d" % pid, "cmdline").split("\0")[:3]]
        except OSError:
            break
        name, fields = head.partition("(")[2], rest.split()
        if name.startswith("sshd"):
            return str(pid), fields[19]
        # not a shell or an editor whose arguments speak of ansible: it outlives the play
        if any(program == "ansible" or program.startswith("ansible-") for program in programs):
            nearest = (str(pid), fields[19])
        elif nearest[0] != "0":
            break
        pid = int(fields[1])
    return nearest


class NoLockError(Exception):
    """Something else lies in the lock's place; `remedy` says how it goes."""

    def __init__(self, text: str, remedy: str) -> None:
        super().__init__(text)
        self.remedy = remedy


def open_lock(path: str) -> int:
    """Open what everybody may lock and write; raise NoLockError if something else is there."""
    flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        file = os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o666)
        os.fchmod(file, 0o666)
        return file
    except FileExistsError:
        refuse_other(path)
        # not with O_CREAT: fs.protected_regular keeps even root from files of others then
        return os.open(path, flags | os.O_NONBLOCK)


def refuse_other(path: str) -> None:
    """Raise NoLockError if the lock's place has something else than a plain file that everybody may write."""
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        return
    if stat.S_ISLNK(status.st_mode):
        what = "is a link to %s" % one_line(os.readlink(path))
    elif not stat.S_ISREG(status.st_mode):
        what = "is not a plain file"
    elif status.st_nlink != 1:
        what = "has another name too"
    elif not os.access(path, os.W_OK):
        what = "may not be written"
    else:
        return
    text = "the machine's lock %s %s, and is of user %d" % (path, what, status.st_uid)
    raise NoLockError(text, "remove it: as root or that login there, `rm -r %s`" % path)


def one_line(value: Any, most: int = 200) -> str:
    """Return what another login wrote, as one line of bounded length: what is no plain character is spelled out."""
    text = str(value)
    shown = "".join(char if char.isprintable() else repr(char)[1:-1] for char in text[:most])
    return shown if len(text) <= most else shown + "…"
