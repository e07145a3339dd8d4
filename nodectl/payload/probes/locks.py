"""Holds this host for one nodectl, for as long as the connection lives that started this program.

The locks are the kernel's (flock): they go with this process, however that ends, and what is left in a file means
nothing. One is the login's, for one measurement at a time. The other is the machine's, whoever logs in: what changes
the host has it alone, all else shares it.
"""

import argparse
import fcntl
import json
import os
import re
import stat
import sys
import time
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence

from ..common.events import say
from ..jobs.folder import JobFolder, known_jobs, state_root

# one nodectl that has just ended may still be going
WAIT_S = 2.0
# until what kept the lock of an ended play has seen that it is relieved
RELIEF_S = 10.0
POLL_S = 0.05
LONGEST = 4096
BEAT_S = 2.0
# where every login may write and none may remove what is another's; the first that is so
COMMON_FOLDERS = ("/run/lock", "/tmp")  # noqa: S108 - one name for all is meant


def host_name() -> str:
    return re.sub(r"[^A-Za-z0-9.-]", "_", os.uname().nodename) or "_"


def lock_path() -> Path:
    """Of this host alone: a home folder may be the same on all of them."""
    return Path(state_root()) / "locks" / ("host-%s.lock" % host_name())


def machine_lock_path() -> Optional[Path]:
    """The same for every login; None where there is no folder for it."""
    for folder in map(Path, COMMON_FOLDERS):
        if folder.is_dir() and folder.stat().st_mode & 0o1002 == 0o1002:
            return folder / ("nodectl-%s.lock" % host_name())
    return None


def open_machine_lock() -> Optional[int]:
    """For everybody to lock and to write into; None where there can be none."""
    path = machine_lock_path()
    if path is None:
        return None
    flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        file = os.open(str(path), flags | os.O_CREAT | os.O_EXCL, 0o666)
        os.fchmod(file, 0o666)
        return file
    except FileExistsError:
        # not with O_CREAT: fs.protected_regular keeps even root from files of others then
        file = os.open(str(path), flags)
    if not stat.S_ISREG(os.fstat(file).st_mode) or os.fstat(file).st_nlink != 1:
        raise OSError("%s is not a plain file" % path)
    return file


def open_lock() -> int:
    path = lock_path()
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    return os.open(str(path), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def holder_of(file: int) -> Dict[str, Any]:
    """What the holder has written; nothing where it has not got so far, or had no room to."""
    try:
        holder = json.loads(os.pread(file, LONGEST, 0))
    except (OSError, ValueError):
        return {}
    return holder if isinstance(holder, dict) else {}


def take(file: int, token: str, mode: int = fcntl.LOCK_EX, stale: str = "") -> Optional[Dict[str, Any]]:
    """None once it is held, by us or by another process of the same nodectl; else who has it.

    The holder whose token is `stale` has ended: what keeps the lock for it goes when it finds another token there.
    """
    until = time.monotonic() + WAIT_S
    while True:
        try:
            fcntl.flock(file, mode | fcntl.LOCK_NB)
            return None
        except BlockingIOError:
            holder = holder_of(file)
        if holder.get("token") == token:
            return None
        if stale and holder.get("token") == stale:
            write_holder(file, {})
            until = time.monotonic() + RELIEF_S
        elif time.monotonic() > until:
            return holder
        time.sleep(POLL_S)


def is_relieved(file: int, token: str) -> bool:
    """Whether another nodectl knows that the run which this process keeps the lock for is no more."""
    try:
        return os.fstat(file).st_size > 0 and holder_of(file).get("token") != token
    except OSError:
        return False


def write_holder(file: int, holder: Dict[str, Any]) -> None:
    """On a full disk the lock holds without it."""
    try:
        os.ftruncate(file, 0)
        os.pwrite(file, json.dumps(holder).encode()[:LONGEST], 0)
    except OSError as error:
        print("the lock is held, but not who holds it: %s" % error, file=sys.stderr, flush=True)


def running_jobs() -> List[Dict[str, str]]:
    """Jobs of nodectl that run here."""
    running = []
    for name in known_jobs():
        job = JobFolder(name)
        try:
            if job.supervisor_alive():
                plan = job.any_plan()
                running.append({"id": name, **{key: str(plan.get(key, "")) for key in ("operator", "script")}})
        except (OSError, ValueError):  # it is being removed
            continue
    return running


def words_of(holder: Dict[str, Any]) -> Dict[str, Any]:
    """What is told of a holder, and what its own controller knows its run by."""
    since, controller = holder.get("since"), holder.get("controller")
    words: Dict[str, Any] = {name: str(holder.get(name) or "") for name in ("operator", "what")}
    words["since"] = since if isinstance(since, (int, float)) else None
    if isinstance(controller, dict):
        words["run"] = {"token": str(holder.get("token") or ""), "controller": controller}
    return words


def main(argv: Optional[Sequence[str]] = None) -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--token", required=True, help="the same for all that one nodectl starts")
    parser.add_argument("--operator", required=True)
    parser.add_argument("--what", required=True)
    parser.add_argument("--changes", action="store_true", help="the host is changed: nobody else, of any login")
    parser.add_argument("--stale", default="", help="the token of a run that has ended without letting go")
    parser.add_argument("--controller", type=json.loads, default={}, help="what its own machine knows this run by")
    options = parser.parse_args(argv)
    try:
        file, common = open_lock(), open_machine_lock()
        holder = take(file, options.token, stale=options.stale)
        if holder is None and common is not None:
            mode = fcntl.LOCK_EX if options.changes else fcntl.LOCK_SH
            holder = take(common, options.token, mode, options.stale)
    except OSError as error:
        say(event="error", text="cannot be locked: %s" % error)
        return 1
    if holder is not None:
        say(event="busy", jobs=running_jobs(), **words_of(holder))
        return 1
    mine = {"token": options.token, "operator": options.operator, "what": options.what, "since": time.time()}
    mine["controller"] = options.controller
    write_holder(file, mine)
    if common is not None:
        write_holder(common, mine)
    say(event="held", pid=os.getpid(), jobs=running_jobs())
    while True:
        time.sleep(BEAT_S)
        alone = [common] if common is not None and options.changes else []
        if any(is_relieved(each, options.token) for each in (file, *alone)):
            return 0
        # so that a host that is cut off is missed soon
        say(event="beat")
