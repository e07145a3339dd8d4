"""How much of its processors this host gets while another of the same machine wants them too."""

import os
import time
from typing import List, Sequence, Tuple


def spin(cpus: Sequence[int], seconds: float) -> Tuple[float, float]:
    """(seconds of processor time that were had, seconds that it took), one process on each of these processors."""
    began, ends = time.monotonic(), time.monotonic() + seconds
    children: List[int] = []
    for cpu in cpus:
        child = os.fork()
        if child == 0:
            try:
                os.sched_setaffinity(0, {cpu})
                while time.monotonic() < ends:
                    pass
            finally:
                os._exit(0)
        children.append(child)
    got = 0.0
    for child in children:
        _, _, usage = os.wait4(child, 0)
        got += usage.ru_utime + usage.ru_stime
    return got, time.monotonic() - began
