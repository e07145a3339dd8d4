"""Memory bandwidth of this host: `look` says by what means it could be measured, `measure` does it.

`spin` says how much of its processors the host gets.  A repetition is as fast as it went on the whole, and as fast as
each pass over the arrays was.
"""

import argparse
import ctypes
import mmap
import os
import threading
import time
from pathlib import Path
from statistics import median
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

from ..common import libraries, machine, program
from ..common.frames import say

# as many passes STREAM takes the best of
BEST_OF = 10


class Rates(NamedTuple):
    """In GB/s; `passes` is empty where single passes are not timed."""

    sustained: float
    passes: List[float]


def best_of_ten(repetitions: Sequence[Rates]) -> float:
    """Return the best of ten passes that lie far apart, without passes the best repetition.

    Of more passes it is the median of such tens, so that more are no better.
    """
    passes = [rate for repetition in repetitions for rate in repetition.passes]
    if not passes:
        return sustained(repetitions)
    tens = max(1, len(passes) // BEST_OF)
    return median(max(passes[first::tens]) for first in range(tens))


def sustained(repetitions: Sequence[Rates]) -> float:
    """Return the best repetition: something else may have run during the others."""
    return max(repetition.sustained for repetition in repetitions)


_TORCH_ARRAYS = 3
_ELEMENT_BYTES = 8
_LEAST_PASSES = 5


def measure_by_torch(cpus: List[int], size_bytes: int, seconds: float, repetitions: int) -> Dict[str, List[Rates]]:
    """GB/s of each repetition and pass, by kernel."""
    import torch

    os.sched_setaffinity(0, set(cpus))
    torch.set_num_threads(len(cpus))
    count = size_bytes // _ELEMENT_BYTES
    # filled by the threads that use them: each page lies where it is first touched
    a, b, c = (torch.empty(count, dtype=torch.float64).fill_(value) for value in (0.0, 1.0, 2.0))
    kernels = {
        "copy": (2, lambda: a.copy_(b)),
        "triad": (3, lambda: torch.add(b, c, alpha=3.0, out=a)),
    }
    rates: Dict[str, List[Rates]] = {name: [] for name in kernels}
    for _ in range(repetitions):
        for name, (streams, kernel) in kernels.items():
            rates[name].append(_rate(kernel, streams * count * _ELEMENT_BYTES, seconds))
    return rates


def _rate(kernel: Callable[[], Any], size_bytes: int, seconds: float) -> Rates:
    kernel()
    passes: List[float] = []
    began = last = time.perf_counter()
    while last - began < seconds or len(passes) < _LEAST_PASSES:
        kernel()
        now = time.perf_counter()
        passes.append(size_bytes / (now - last) / 1e9)
        last = now
    return Rates(len(passes) * size_bytes / (last - began) / 1e9, passes)


LIBC_ARRAYS = 2


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
            maps = [mmap.mmap(-1, self.size) for _ in range(LIBC_ARRAYS)]
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
                return passes * LIBC_ARRAYS * size / took / 1e9


def measure_by_libc(cpus: List[int], size_bytes: int, seconds: float, repetitions: int) -> Dict[str, List[Rates]]:
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


def spun(cpus: Sequence[int], seconds: float) -> Tuple[float, float]:
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


# by name: what measures, and over how many arrays
METHODS = {
    "torch": (measure_by_torch, _TORCH_ARRAYS),
    "libc": (measure_by_libc, LIBC_ARRAYS),
}


def look(options: argparse.Namespace) -> None:
    """Say by what means it can be measured; `machine` is the same for all containers of one machine."""
    has_torch = options.venv and libraries.installed(Path(options.venv), "torch")
    say(event="ready", methods=["torch", "libc"] if has_torch else ["libc"], machine=machine.boot_id())


def measure(options: argparse.Namespace) -> None:
    """Every scope: what each run came to, by its best passes and by its best repetition."""
    measured, arrays = METHODS[options.method]
    for scope in machine.scopes():
        cache = machine.cache_bytes(scope.cpus)
        size = machine.array_bytes(cache, arrays)
        best_of = options.repetitions
        kernels = measured(scope.cpus, size, options.seconds, best_of * options.runs)
        for kernel, repetitions in kernels.items():
            runs = [repetitions[start : start + best_of] for start in range(0, len(repetitions), best_of)]
            say(
                event="measured",
                kernel=kernel,
                numa=scope.numa,
                threads=len(scope.cpus),
                runs_gb_s=[round(best_of_ten(run), 3) for run in runs],
                sustained_gb_s=[round(sustained(run), 3) for run in runs],
                array_bytes=size,
                cache_bytes=cache,
            )


def spin(options: argparse.Namespace) -> None:
    """Compute on every processor for a while: beside a host that does the same, a quota shows and load does not."""
    cpus = sorted(os.sched_getaffinity(0))
    got_s, wall_s = spun(cpus, options.seconds)
    say(event="spun", got=round(got_s / (wall_s * len(cpus)), 4))


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Run `look` or `measure`."""
    parser, (looking, measuring, turning) = program.commands(look, measure, spin)
    turning.add_argument("--seconds", type=float, required=True)
    looking.add_argument("--venv", default="")
    measuring.add_argument("--method", choices=sorted(METHODS), required=True)
    measuring.add_argument("--seconds", type=float, required=True, help="of one repetition of one kernel")
    measuring.add_argument("--repetitions", type=int, required=True, help="of which a run is made")
    measuring.add_argument("--runs", type=int, required=True)
    return program.run(parser, argv, MemoryError, ImportError)
