"""Copy and triad by torch's own threads, for hosts that have the launcher's environment."""

import os
import time
from typing import Any, Callable, Dict, List

ARRAYS = 3
_ELEMENT_BYTES = 8


def measure(cpus: List[int], size_bytes: int, seconds: float, repetitions: int) -> Dict[str, List[float]]:
    """GB/s of each repetition, by kernel."""
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
    found: Dict[str, List[float]] = {name: [] for name in kernels}
    for _ in range(repetitions):
        for name, (streams, kernel) in kernels.items():
            found[name].append(_rate(kernel, streams * count * _ELEMENT_BYTES, seconds))
    return found


def _rate(kernel: Callable[[], Any], size_bytes: int, seconds: float) -> float:
    kernel()
    began, passes = time.perf_counter(), 0
    while True:
        kernel()
        passes += 1
        took = time.perf_counter() - began
        if took >= seconds:
            return passes * size_bytes / took / 1e9
