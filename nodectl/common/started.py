"""When this process was started: what an operator waits for begins there, not where our own code does."""

import os
import time
from pathlib import Path

_STAT = Path("/proc/self/stat")
# of `man 5 proc`, counted behind the name in brackets, which may hold blanks
_START_TIME = 19
# a start longer ago than this is not that of a command
_MOST_S = 600.0


def started() -> float:
    """The moment of the monotonic clock; now, where the kernel does not tell."""
    now = time.monotonic()
    try:
        ticks = int(_STAT.read_text().rpartition(")")[2].split()[_START_TIME])
        age_s = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError, AttributeError):
        return now
    return now - age_s if 0 <= age_s < _MOST_S else now
