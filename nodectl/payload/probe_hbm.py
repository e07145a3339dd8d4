"""Copies within the memory of every GPU of this host at once: GB/s read and written.

JSON lines; Python 3.8, the standard library and torch.
"""

import argparse
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING or __name__.startswith("nodectl."):
    from nodectl.payload.gpubench import copies, program
    from nodectl.payload.gpubench.cuda import Cuda
else:  # on a node this folder is sys.path[0], and there is no nodectl
    from gpubench import copies, program
    from gpubench.cuda import Cuda


def arguments(_: argparse.ArgumentParser) -> None:
    """None of its own."""


def work(device: program.Device) -> None:
    """One array into another, both far larger than the cache."""
    if device.gpu is not None:
        measure(Cuda(device.torch), device.gpu, device)


def measure(cuda: Cuda, gpu: int, device: program.Device) -> None:
    """Of one GPU."""
    options = device.options
    how, rates = copies.halving(
        copies.size_on(cuda, gpu),
        lambda size: copies.within(cuda, gpu, size, options.seconds, options.runs, device.ready),
    )
    device.say(
        {
            "event": "measured",
            "gpu": gpu,
            "how": how,
            "rates": rates.values,
            "wrong": rates.wrong,
            "array_bytes": rates.size_bytes,
            "cache_bytes": cuda.cache_bytes(gpu),
            "passes": rates.passes,
            "began": rates.began,
            "ended": rates.ended,
        }
    )


if __name__ == "__main__":
    sys.exit(program.main(work, arguments, on_cpu=False))
