"""The same seeded computation on every GPU of this host, or on each of its processors: digests of what comes out."""

import argparse
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Dict, Optional, Sequence

from . import devices, matmul, seeded
from .cuda import Cuda

# a thread each, so that every processor computes by itself and always in the same order; before torch is imported
for _name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_name] = "1"
os.environ["MKL_CBWR"] = "AUTO,STRICT"

# fp8 is left to gemm: it has no product that all torch versions call alike
PRODUCTS = ("bf16", "fp16", "tf32", "fp32")


def arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `measure`."""
    parser.add_argument("--seed", type=int, default=1)


def work(device: devices.Device) -> None:
    """A GPU, or every processor that may be used, all at once."""
    if device.gpu is not None:
        device.ready()
        device.say(**computed(device), gpu=device.gpu)
        return
    cpus = sorted(os.sched_getaffinity(0))
    with ThreadPoolExecutor(len(cpus)) as pool:
        for event in pool.map(lambda cpu: on_processor(device, cpu), cpus):
            device.say(**event)


def on_processor(device: devices.Device, cpu: int) -> Dict[str, Any]:
    """A thread that stays on one processor."""
    os.sched_setaffinity(threading.get_native_id(), {cpu})
    device.torch.set_num_threads(1)
    return {**computed(device), "gpu": None, "cpu": cpu}


def computed(device: devices.Device) -> Dict[str, Any]:
    """The digests of all repetitions."""
    options, cuda = device.options, Cuda(device.torch)
    products = [name for name in PRODUCTS if not matmul.lacks(cuda, name, device.gpu)]
    extent = seeded.ON_CPU if device.gpu is None else seeded.ON_GPU
    began = time.monotonic()
    computation = seeded.Computation(device.torch, cuda.device(device.gpu), options.seed, extent, products)
    digests = seeded.repeated(computation, options.runs, options.seconds)
    return {"event": "computed", "digests": digests, "began": began, "ended": time.monotonic()}


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Run `look` or `measure`."""
    return devices.main(argv, work, on_cpu=True, arguments=arguments)
