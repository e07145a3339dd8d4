"""Matrix products on every GPU of this host at once, or on its processors: TFLOP/s, and whether they are right."""

import argparse
import ctypes
import hashlib
import os
import time
from typing import Any, Optional, Sequence

from ...common import machine
from . import devices, matmul
from .cuda import Cuda

# a thread that waits for the others leaves its processor to them; before torch is imported
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

ON_GPU = ("bf16", "fp16", "tf32", "fp8")
_CPU_BYTES = 512 << 20
_FREE_PART, _CPU_FREE_PART = 2, 4
# the mode bits: what is computed, and the side of its matrices
BITS_ON_GPU, BITS_ON_CPU = ("fp16",), ("fp32",)
SIDE_ON_GPU, SIDE_ON_CPU = 4096, 512


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `measure`."""
    parser.add_argument("--precisions", default="", help="by comma; empty: what the device is made for")
    parser.add_argument("--mode", choices=("rate", "bits"), default="rate")


def work(device: devices.Device) -> None:
    """Every precision, one after the other, each at the same time on all GPUs."""
    torch, gpu = device.torch, device.gpu
    cuda = Cuda(torch)
    chosen = [name for name in device.options.precisions.split(",") if name]
    usual: Sequence[str] = matmul.ON_CPU if gpu is None else ON_GPU
    threads, measure = len(os.sched_getaffinity(0)), one
    if device.options.mode == "bits":
        # several threads may add up in another order each time
        usual, threads, measure = (BITS_ON_CPU if gpu is None else BITS_ON_GPU), 1, repeat
    if gpu is None:
        torch.set_num_threads(threads)
    for name in chosen or usual:
        reason = matmul.lacks(cuda, name, gpu)
        if reason:
            device.say(event="lacks", gpu=gpu, precision=name, text=reason)
            continue
        measure(cuda, device, name)


def repeat(cuda: Cuda, device: devices.Device, name: str) -> None:
    """Compute one seeded product over and over; say how many have other bits than the first."""
    torch, gpu, options = device.torch, device.gpu, device.options
    bench = matmul.Bench(cuda, name, gpu, 0)
    reason = bench.refusal()
    if reason:
        device.say(event="lacks", gpu=gpu, precision=name, text=reason)
        return
    side = SIDE_ON_CPU if gpu is None else SIDE_ON_GPU
    given = bench.operands(matmul.Choice((side, side, side), "nt"), seed=1)
    first = last = bench.product(given).clone()
    rounds, changed, began = 0, 0, time.monotonic()
    for _ in range(options.runs):
        device.ready()
        until = time.monotonic() + options.seconds
        while True:
            last = bench.product(given)
            rounds += 1
            # what is no number differs from itself, its bits do not
            changed += not torch.equal(first.view(torch.uint8), last.view(torch.uint8))
            if time.monotonic() >= until:
                break
    told = digest(first)
    # by the processor: a GPU that compares wrongly is found as well
    changed = changed or int(digest(last) != told)
    found = {"rounds": rounds, "changed": changed, "digest": told, "began": began, "ended": time.monotonic()}
    device.say(event="repeated", gpu=gpu, precision=name, **found)


def digest(result: Any) -> str:
    """64 bits of the SHA-256 of all its bytes, in hexadecimal."""
    here = result.contiguous().cpu()
    return hashlib.sha256(ctypes.string_at(here.data_ptr(), here.numel() * here.element_size())).hexdigest()[:16]


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
        cuda.torch.cuda.empty_cache()


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Run `look` or `measure`."""
    return devices.main(argv, work, on_cpu=True, arguments=arguments)
