"""Start times of processes: an operator waits from there on, and a process id means nothing without it."""

import os
import socket
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

# of `man 5 proc`, counted behind the name in brackets, which may hold blanks
_START_TIME = 19
# a start longer ago than this is not that of a command
_MOST_S = 600.0


def started() -> float:
    """Return when this process was started, in seconds of the monotonic clock; now where the kernel does not tell."""
    now = time.monotonic()
    try:
        age_s = time.clock_gettime(time.CLOCK_BOOTTIME) - int(start_of(os.getpid())) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, AttributeError):
        return now
    return now - age_s if 0 <= age_s < _MOST_S else now


def start_of(pid: int) -> str:
    """Return when a process of this machine started, in the kernel's words; empty where nobody can tell."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        return text.rpartition(")")[2].split()[_START_TIME]
    except (OSError, IndexError):
        return ""


def controller(pid: int) -> dict[str, Any]:
    """Return what `has_ended` needs to know of a process of this machine."""
    return {"host": socket.gethostname(), "pid": pid, "start": start_of(pid)}


def has_ended(controller: Mapping[str, Any]) -> bool:
    """Return whether the run of these `host`, `pid` and `start` began on this machine and its process is gone."""
    try:
        host, pid, start = str(controller["host"]), int(controller["pid"]), str(controller["start"])
    except (KeyError, TypeError, ValueError):
        return False
    if host != socket.gethostname() or pid < 1:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return bool(start) and start_of(pid) not in ("", start)
