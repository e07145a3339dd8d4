"""Matrix products on every GPU of this host at once, or on its processors: TFLOP/s, and whether they are right.

JSON lines; Python 3.8, the standard library and torch.
"""

import argparse
import os
import sys
import time
from typing import TYPE_CHECKING

# a thread that waits for the others leaves its processor to them
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

if TYPE_CHECKING or __name__.startswith("nodectl."):
    from nodectl.payload.gpubench import matmul, program
    from nodectl.payload.gpubench.cuda import Cuda
    from nodectl.payload.membench import machine
else:  # on a node this folder is sys.path[0], and there is no nodectl
    from gpubench import matmul, program
    from gpubench.cuda import Cuda
    from membench import machine

ON_GPU = ("bf16", "fp16", "tf32", "fp8")
_CPU_BYTES = 512 << 20
_FREE_PART, _CPU_FREE_PART = 2, 4


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--precisions", default="", help="by comma; empty: what the device is made for")


def work(device: program.Device) -> None:
    """Every precision, one after the other, each at the same time on all GPUs."""
    torch, gpu = device.torch, device.gpu
    cuda = Cuda(torch)
    chosen = [name for name in device.options.precisions.split(",") if name]
    if gpu is None:
        torch.set_num_threads(len(os.sched_getaffinity(0)))
    for name in chosen or (matmul.ON_CPU if gpu is None else ON_GPU):
        reason = matmul.lacks(cuda, name, gpu)
        if reason:
            device.say({"event": "lacks", "gpu": gpu, "precision": name, "text": reason})
            continue
        one(cuda, device, name)


def one(cuda: Cuda, device: program.Device, name: str) -> None:
    """One precision."""
    gpu, options = device.gpu, device.options
    if gpu is None:
        memory = min(_CPU_BYTES, machine.available_bytes() // _CPU_FREE_PART)
    else:
        memory = cuda.free_bytes(gpu) // _FREE_PART
    bench = matmul.Bench(cuda, name, gpu, memory, 0 if gpu is None else cuda.cache_bytes(gpu))
    choice = bench.search(options.seconds)
    began = time.monotonic()
    found = bench.measure(choice, options.seconds, options.runs, device.ready)
    device.say(
        {
            "event": "measured",
            "gpu": gpu,
            "precision": name,
            "rates": found.rates,
            "shape": list(choice.shape),
            "layout": choice.layout,
            "passes": found.passes,
            "sets": found.sets,
            "checked": found.checked,
            "wrong": found.wrong,
            "changed": found.changed,
            "error": found.error,
            "began": began,
            "ended": time.monotonic(),
        }
    )
    if gpu is not None:
        del bench
        cuda.forget()


if __name__ == "__main__":
    sys.exit(program.main(work, arguments, on_cpu=True))
