"""Copy by the C library's memmove, a thread a processor: what every host with a Python has."""

import ctypes
import mmap
import os
import threading
import time
from typing import Dict, List

from .rates import Rates

ARRAYS = 2


class Worker(threading.Thread):
    """One pinned thread with its own part of both arrays; ctypes lets the others run while it copies."""

    def __init__(self, cpu: int, size: int, start: threading.Barrier) -> None:
        super().__init__(daemon=True)
        self.cpu, self.size, self.meet = cpu, size, start
        self.seconds, self.rounds = 0.0, 0
        self.rates: List[float] = []
        self.error = ""

    def run(self) -> None:
        """Touch the pages, then copy for `seconds` in each round."""
        try:
            os.sched_setaffinity(threading.get_native_id(), {self.cpu})
            maps = [mmap.mmap(-1, self.size) for _ in range(ARRAYS)]
            to, source = (ctypes.addressof(ctypes.c_char.from_buffer(array)) for array in maps)
            ctypes.memset(source, 1, self.size)
            for _ in range(self.rounds):
                self.rates.append(self._round(to, source))
        except (OSError, ValueError, threading.BrokenBarrierError) as error:
            self.error = str(error) or "another thread failed"
            self.meet.abort()

    def _round(self, to: int, source: int) -> float:
        move, size = ctypes.memmove, self.size
        move(to, source, size)
        self.meet.wait()
        began = time.perf_counter()
        passes = 0
        while True:
            move(to, source, size)
            passes += 1
            took = time.perf_counter() - began
            if took >= self.seconds:
                return passes * ARRAYS * size / took / 1e9


def measure(cpus: List[int], size_bytes: int, seconds: float, repetitions: int) -> Dict[str, List[Rates]]:
    """GB/s of each repetition, read and written together."""
    part = max(mmap.PAGESIZE, size_bytes // len(cpus) // mmap.PAGESIZE * mmap.PAGESIZE)
    start = threading.Barrier(len(cpus))
    workers = [Worker(cpu, part, start) for cpu in cpus]
    for worker in workers:
        worker.seconds, worker.rounds = seconds, repetitions
        worker.start()
    for worker in workers:
        worker.join()
    errors = [worker.error for worker in workers if worker.error]
    if errors:
        raise RuntimeError(errors[0])
    return {"copy": [Rates(sum(worker.rates[n] for worker in workers), []) for n in range(repetitions)]}
