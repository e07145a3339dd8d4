"""Holds this host for one nodectl, for as long as the connection lives that started this program.

The locks are the kernel's (flock): they go with this process, however that ends, and what is left in a file means
nothing. One is the login's, for one measurement at a time. The other is the machine's, whoever logs in: what changes
the host has it alone, all else shares it. Who holds the machine's stands in a file a login, which the kernel keeps
others from writing: a login can say whose laptop it works for, and not that it is another login.
"""

import argparse
import fcntl
import json
import os
import pwd
import re
import signal
import stat
import sys
import time
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence, cast

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
    """Open what everybody may lock and nobody else may write; None where there can be none."""
    path = machine_lock_path()
    if path is None:
        return None
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        file = os.open(str(path), flags | os.O_CREAT | os.O_EXCL, 0o644)
        os.fchmod(file, 0o644)
        return file
    except FileExistsError:
        # not with O_CREAT: fs.protected_regular keeps even root from files of others then
        file = os.open(str(path), flags)
    if not stat.S_ISREG(os.fstat(file).st_mode) or os.fstat(file).st_nlink != 1:
        os.close(file)
        raise OSError("%s is not a plain file" % path)
    return file


def started(pid: int) -> str:
    """Return when a process started, in the kernel's ticks; empty where there is none."""
    try:
        text = Path("/proc/%d/stat" % pid).read_text(encoding="utf-8", errors="replace")
        return text.rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""


def claim_path(lock: Path, uid: int) -> Path:
    """Return where a login says who it holds the machine's lock for: one file a login, that only it can write."""
    return lock.with_name("%s.%d" % (lock.name, uid))


def claims(lock: Path) -> List[Dict[str, Any]]:
    """Return what logins say whose process lives, newest first; `login` is the file's owner, whatever stands in it."""
    found = []
    for place in lock.parent.glob(lock.name + ".*"):
        try:
            file = os.open(str(place), os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError:
            continue
        try:
            status, claim = os.fstat(file), holder_of(file)
        finally:
            os.close(file)
        pid, start, since = claim.get("pid"), claim.get("start"), claim.get("since")
        by_owner = stat.S_ISREG(status.st_mode) and place == claim_path(lock, status.st_uid)
        if by_owner and isinstance(pid, int) and pid > 1 and start and started(pid) == start:
            since = since if isinstance(since, (int, float)) else 0
            found.append({**claim, "since": since, "uid": status.st_uid, "login": login_of(status.st_uid)})
    return sorted(found, key=lambda claim: claim["since"], reverse=True)


def login_of(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def write_claim(lock: Path, claim: Dict[str, Any]) -> None:
    """Say who holds the lock, as this login; where that cannot be written the lock holds without it."""
    place = claim_path(lock, os.geteuid())
    aside = place.with_name(".%s.%d" % (place.name, os.getpid()))
    try:
        file = os.open(str(aside), os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        try:
            os.fchmod(file, 0o644)
            os.write(file, json.dumps(claim).encode()[:LONGEST])
        finally:
            os.close(file)
        aside.replace(place)
    except OSError as error:
        print("the lock is held, but not who holds it: %s" % error, file=sys.stderr, flush=True)


def relieve(claim: Dict[str, Any]) -> bool:
    """End the process that a login's claim names, where it is that login's; False where this login may not."""
    try:
        text = Path("/proc/%d/status" % claim["pid"]).read_text(encoding="utf-8", errors="replace")
        uids = [line.split()[2] for line in text.splitlines() if line.startswith("Uid:")]
        if uids != [str(claim["uid"])]:
            return False
        os.kill(claim["pid"], signal.SIGTERM)
    except (OSError, IndexError):
        return False
    return True


def take_machine(file: int, lock: Path, token: str, mode: int, stale: str = "") -> Optional[Dict[str, Any]]:
    """Return None once the machine's lock is held, by us or by another process of the same nodectl; else who has it.

    A holder whose token is `stale` has ended: what keeps the lock for it is ended too, where this login may do so.
    """
    until = time.monotonic() + WAIT_S
    while True:
        try:
            fcntl.flock(file, mode | fcntl.LOCK_NB)
            return None
        except BlockingIOError:
            found = claims(lock)
        if any(claim.get("token") == token and claim["uid"] == os.geteuid() for claim in found):
            return None
        if stale and any(relieve(claim) for claim in found if claim.get("token") == stale):
            until = time.monotonic() + RELIEF_S
        elif time.monotonic() > until:
            return found[0] if found else {"unknown": str(lock)}
        time.sleep(POLL_S)


def open_lock() -> int:
    path = lock_path()
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    return os.open(str(path), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def holder_of(file: int) -> Dict[str, Any]:
    """Return what the holder has written; nothing where it has not got so far, or had no room to."""
    try:
        holder = json.loads(os.pread(file, LONGEST, 0))
    except (OSError, ValueError):
        return {}
    return holder if isinstance(holder, dict) else {}


def take(file: int, token: str, mode: int = fcntl.LOCK_EX, stale: str = "") -> Optional[Dict[str, Any]]:
    """Return None once it is held, by us or by another process of the same nodectl; else who has it.

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
    """Return whether another nodectl knows that the run which this process keeps the lock for is no more."""
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
    """Return what is told of a holder, and what its own controller knows its run by."""
    since, controller = holder.get("since"), holder.get("controller")
    words: Dict[str, Any] = {name: str(holder.get(name) or "") for name in ("operator", "what", "login", "unknown")}
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
            holder = take_machine(common, cast(Path, machine_lock_path()), options.token, mode, options.stale)
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
        mine = {**mine, "pid": os.getpid(), "start": started(os.getpid())}
        write_claim(cast(Path, machine_lock_path()), mine)
    say(event="held", pid=os.getpid(), jobs=running_jobs())
    while True:
        time.sleep(BEAT_S)
        if is_relieved(file, options.token):
            return 0
        # so that a host that is cut off is missed soon
        say(event="beat")
