"""Holds this host for one nodectl, for as long as the connection lives that started this program."""

import argparse
import os
import time
from typing import Any, Dict, List, Optional, Sequence

from ..common import host_lock
from ..common.frames import say
from ..jobs import notes
from ..jobs.folder import JobFolder

BEAT_S = 2.0


def running_jobs() -> List[Dict[str, str]]:
    """Jobs of nodectl that run here; those of other logins without their plans."""
    running = []
    for name, login in sorted(host_lock.running_jobs().items()):
        plan = {"operator": login, "script": "", **notes.read(JobFolder(name).at("plan.json"))}
        running.append({"id": name, **{key: host_lock.one_line(plan[key]) for key in ("operator", "script")}})
    return running


def words_of(holder: Dict[str, Any]) -> Dict[str, Any]:
    """Return what is told of a holder."""
    since = holder.get("since")
    row: Dict[str, Any] = {name: host_lock.one_line(holder.get(name) or "") for name in ("operator", "what", "unknown")}
    row["left"] = bool(holder.get("left"))
    row["since"] = since if isinstance(since, (int, float)) else None
    return row


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Hold the host's lock until this program is ended."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--token", required=True, help="the same for all that one nodectl starts")
    parser.add_argument("--operator", required=True)
    parser.add_argument("--what", required=True)
    options = parser.parse_args(argv)
    try:
        path = host_lock.lock_path()
        holder = host_lock.take(path, vars(options))[1] if path else {}
    except host_lock.NoLockError as error:
        say(event="error", text="cannot be locked: %s" % error, remedy=error.remedy)
        return 1
    except OSError as error:
        say(event="error", text="cannot be locked: %s" % error)
        return 1
    if holder:
        say(event="busy", jobs=running_jobs(), **words_of(holder))
        return 1
    say(event="held", pid=os.getpid(), jobs=running_jobs())
    while True:
        time.sleep(BEAT_S)
        # so that a host that is cut off is missed soon
        say(event="beat")
