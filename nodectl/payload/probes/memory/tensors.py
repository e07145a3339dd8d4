"""Copy and triad by torch's own threads, for hosts that have the launcher's environment."""

import os
import time
from typing import Any, Callable, Dict, List

from .rates import Rates

ARRAYS = 3
_ELEMENT_BYTES = 8
_LEAST_PASSES = 5


def measure(cpus: List[int], size_bytes: int, seconds: float, repetitions: int) -> Dict[str, List[Rates]]:
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
