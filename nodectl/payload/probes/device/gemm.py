"""Matrix products on every GPU of this host at once, or on its processors: TFLOP/s, and whether they are right."""

import argparse
import os
import time
from typing import Optional, Sequence

from ...common import machine
from . import devices, matmul
from .cuda import Cuda

# a thread that waits for the others leaves its processor to them; before torch is imported
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

ON_GPU = ("bf16", "fp16", "tf32", "fp8")
_CPU_BYTES = 512 << 20
_FREE_PART, _CPU_FREE_PART = 2, 4


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `measure`."""
    parser.add_argument("--precisions", default="", help="by comma; empty: what the device is made for")


def work(device: devices.Device) -> None:
    """Every precision, one after the other, each at the same time on all GPUs."""
    torch, gpu = device.torch, device.gpu
    cuda = Cuda(torch)
    chosen = [name for name in device.options.precisions.split(",") if name]
    if gpu is None:
        torch.set_num_threads(len(os.sched_getaffinity(0)))
    for name in chosen or (matmul.ON_CPU if gpu is None else ON_GPU):
        reason = matmul.lacks(cuda, name, gpu)
        if reason:
            device.say(event="lacks", gpu=gpu, precision=name, text=reason)
            continue
        one(cuda, device, name)


def one(cuda: Cuda, device: devices.Device, name: str) -> None:
    """Measure one precision."""
    gpu, options = device.gpu, device.options
    if gpu is None:
        memory = min(_CPU_BYTES, (machine.available_bytes() or _CPU_BYTES) // _CPU_FREE_PART)
    else:
        memory = cuda.free_bytes(gpu) // _FREE_PART
    bench = matmul.Bench(cuda, name, gpu, memory, 0 if gpu is None else cuda.cache_bytes(gpu))
    reason = bench.refusal()
    if reason:
        device.say(event="lacks", gpu=gpu, precision=name, text=reason)
        return
    choice = bench.search(options.seconds)
    began = time.monotonic()
    measured = bench.measure(choice, options.seconds, options.runs, device.ready)
    device.say(
        **{**measured._asdict(), "shape": list(choice.shape), "layout": choice.layout},
        event="measured",
        gpu=gpu,
        precision=name,
        began=began,
        ended=time.monotonic(),
    )
    if gpu is not None:
        del bench
        cuda.forget()


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Run `look` or `measure`."""
    return devices.main(argv, work, on_cpu=True, arguments=arguments)
