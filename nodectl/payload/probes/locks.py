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
import sys
import time
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence

from ..common import host_lock
from ..common.events import say
from ..jobs.folder import JobFolder, known_jobs, state_root

# one nodectl that has just ended may still be going
WAIT_S = 2.0
# until what kept the lock of an ended play has seen that it is relieved
RELIEF_S = 10.0
POLL_S = 0.05
BEAT_S = 2.0


def lock_path() -> Path:
    """Return the lock of this host alone: a home folder may be the same on all of them."""
    return Path(state_root()) / "locks" / ("host-%s.lock" % host_lock.host_name())


def take_machine(file: int, lock: str, token: str, mode: int, stale: str = "") -> Optional[Dict[str, Any]]:
    """Return None once the machine's lock is held, by us or by another process of the same nodectl; else who has it.

    A holder whose token is `stale` has ended: what keeps the lock for it is ended too, where this login may do so.
    """
    until = time.monotonic() + WAIT_S
    while True:
        try:
            fcntl.flock(file, mode | fcntl.LOCK_NB)
            return None
        except BlockingIOError:
            holders = host_lock.claims(lock)
        if any(claim.get("token") == token and claim["uid"] == os.geteuid() for claim in holders):
            return None
        if stale and any(host_lock.relieve(claim) for claim in holders if claim.get("token") == stale):
            until = time.monotonic() + RELIEF_S
        elif time.monotonic() > until:
            return holders[0] if holders else {"unknown": lock}
        time.sleep(POLL_S)


def open_lock() -> int:
    """Open the login's own lock file, made where it is missing."""
    path = lock_path()
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    return os.open(str(path), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


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
            holder = host_lock.holder_of(file)
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
        return os.fstat(file).st_size > 0 and host_lock.holder_of(file).get("token") != token
    except OSError:
        return False


def write_holder(file: int, holder: Dict[str, Any]) -> None:
    """On a full disk the lock holds without it."""
    try:
        os.ftruncate(file, 0)
        os.pwrite(file, json.dumps(holder).encode()[: host_lock.LONGEST], 0)
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
                running.append(
                    {"id": name, **{key: host_lock.one_line(plan.get(key, "")) for key in ("operator", "script")}}
                )
        except (OSError, ValueError):  # it is being removed
            continue
    return running


def words_of(holder: Dict[str, Any]) -> Dict[str, Any]:
    """Return what is told of a holder, and what its own controller knows its run by."""
    since, controller = holder.get("since"), holder.get("controller")
    row: Dict[str, Any] = {
        name: host_lock.one_line(holder.get(name) or "") for name in ("operator", "what", "login", "unknown")
    }
    row["since"] = since if isinstance(since, (int, float)) else None
    if isinstance(controller, dict):
        row["run"] = {"token": str(holder.get("token") or ""), "controller": controller}
    return row


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Hold the host's lock until this program is ended, or relieved."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--token", required=True, help="the same for all that one nodectl starts")
    parser.add_argument("--operator", required=True)
    parser.add_argument("--what", required=True)
    parser.add_argument("--changes", action="store_true", help="the host is changed: nobody else, of any login")
    parser.add_argument("--stale", default="", help="the token of a run that has ended without letting go")
    parser.add_argument("--controller", type=json.loads, default={}, help="what its own machine knows this run by")
    options = parser.parse_args(argv)
    try:
        file, machine = open_lock(), host_lock.lock_path()
        common = host_lock.open_lock(machine) if machine else None
        holder = take(file, options.token, stale=options.stale)
        if holder is None and machine and common is not None:
            mode = fcntl.LOCK_EX if options.changes else fcntl.LOCK_SH
            holder = take_machine(common, machine, options.token, mode, options.stale)
    except host_lock.NoLockError as error:
        say(event="error", text="cannot be locked: %s" % error, remedy=error.remedy)
        return 1
    except OSError as error:
        say(event="error", text="cannot be locked: %s" % error)
        return 1
    if holder is not None:
        say(event="busy", jobs=running_jobs(), **words_of(holder))
        return 1
    mine = {"token": options.token, "operator": options.operator, "what": options.what, "since": time.time()}
    mine["controller"] = options.controller
    write_holder(file, mine)
    if machine:
        host_lock.write_claim(machine, {**mine, "pid": os.getpid(), "start": host_lock.started(os.getpid())})
    say(event="held", pid=os.getpid(), jobs=running_jobs())
    while True:
        time.sleep(BEAT_S)
        if is_relieved(file, options.token):
            return 0
        # so that a host that is cut off is missed soon
        say(event="beat")
