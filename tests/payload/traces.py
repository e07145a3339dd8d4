"""Chrome traces for tests, written by hand in the form of torch's profiler: no GPU was asked."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any


def event(kind: str, name: str, begin_us: float, duration_us: float, thread: int = 1) -> dict[str, Any]:
    """One complete event."""
    return {"ph": "X", "cat": kind, "name": name, "pid": 1, "tid": thread, "ts": begin_us, "dur": duration_us}


def write(path: Path, events: Iterable[dict[str, Any]]) -> Path:
    """A packed trace, with the heads that torch writes in front of the events."""
    head = {"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "a GPU"}], "distributedInfo": {"rank": 0}}
    rest = [{"ph": "M", "name": "process_name", "pid": 1, "tid": 0, "ts": 0, "args": {"name": "python"}}]
    with gzip.open(path, "wt") as file:
        json.dump({**head, "traceEvents": [*rest, *events], "traceName": "t"}, file, indent=2)
    return path


# two steps of 1000 us on a GPU. In each: 500 us of maths from 100 on; a copy of 100 us, half of it beside them; an
# all-reduce of 400 us, of which 150 us lie beside the maths and 250 behind; data loading of 100 us, half beside that
GPU_STEP = [
    ("cpu_op", "aten::mm", 0, 90),
    ("user_annotation", "nccl:all_reduce", 300, 20),
    ("kernel", "ampere_sgemm_128x64_nn", 100, 300),
    ("kernel", "void at::native::vectorized_elementwise_kernel<4>", 400, 200),
    ("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", 50, 100),
    ("kernel", "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", 450, 400),
    ("user_annotation", "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", 800, 100),
    ("user_annotation", "Optimizer.step#AdamW.step", 920, 60),
]


def gpu_events(steps: int = 2, longer_us: float = 0.0) -> list[dict[str, Any]]:
    """Steps as GPU_STEP; each has `longer_us` more of maths in front of its all-reduce, which is so much shorter."""
    found = []
    for number in range(steps):
        at = 1e12 + 1000 * number
        found.append(event("user_annotation", f"ProfilerStep#{number + 1}", at, 1000))
        for kind, name, begin, duration in GPU_STEP:
            late_us = longer_us if name.startswith("ncclDev") else 0
            found.append(event(kind, name, at + begin + late_us, duration - late_us, 7))
        if longer_us:
            found.append(event("kernel", "ampere_sgemm_128x64_nt", at + 600, longer_us, 7))
    return found
