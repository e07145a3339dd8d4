"""Holds this host for one nodectl, for as long as the connection lives that started this program.

The lock is the kernel's (flock): it goes with this process, however that ends, and what is left in the file means
nothing.
"""

import argparse
import fcntl
import json
import os
import re
import signal
import sys
import time
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence

from ..common.events import say
from ..jobs.folder import JobFolder, known_jobs, state_root

# one nodectl that has just ended may still be going
WAIT_S = 2.0
POLL_S = 0.05
LONGEST = 4096


def lock_path() -> Path:
    """Of this host alone: a home folder may be the same on all of them."""
    name = re.sub(r"[^A-Za-z0-9.-]", "_", os.uname().nodename) or "_"
    return Path(state_root()) / "locks" / ("host-%s.lock" % name)


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


def take(file: int, token: str) -> Optional[Dict[str, Any]]:
    """None once it is held, by us or by another process of the same nodectl; else who has it."""
    until = time.monotonic() + WAIT_S
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return None
        except BlockingIOError:
            holder = holder_of(file)
        if holder.get("token") == token:
            return None
        if time.monotonic() > until:
            return holder
        time.sleep(POLL_S)


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
                plan = job.plan()
                running.append({"id": name, "operator": str(plan.get("operator", "")), "script": str(plan["script"])})
        except (OSError, ValueError, KeyError):  # it is being removed
            continue
    return running


def main(argv: Optional[Sequence[str]] = None) -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--token", required=True, help="the same for all that one nodectl starts")
    parser.add_argument("--operator", required=True)
    parser.add_argument("--what", required=True)
    options = parser.parse_args(argv)
    try:
        file = open_lock()
        holder = take(file, options.token)
    except OSError as error:
        say(event="error", text="cannot be locked: %s" % error)
        return 1
    if holder is not None:
        since = holder.get("since")
        holder_words = {name: str(holder.get(name) or "") for name in ("operator", "what")}
        say(event="busy", since=since if isinstance(since, (int, float)) else None, jobs=running_jobs(), **holder_words)
        return 1
    mine = {"token": options.token, "operator": options.operator, "what": options.what, "since": time.time()}
    write_holder(file, mine)
    say(event="held", pid=os.getpid(), jobs=running_jobs())
    while True:
        signal.pause()
