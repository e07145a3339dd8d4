"""Copies between pinned memory of the near and the far NUMA node and each GPU of this host, a GPU at a time.

JSON lines; Python 3.8, the standard library and torch.
"""

import argparse
import sys
from functools import partial
from typing import TYPE_CHECKING, Any, Optional

if TYPE_CHECKING or __name__.startswith("nodectl."):
    from nodectl.payload.gpubench import copies, hardware, places, program
    from nodectl.payload.gpubench.cuda import Cuda
else:  # on a node this folder is sys.path[0], and there is no nodectl
    from gpubench import copies, hardware, places, program
    from gpubench.cuda import Cuda

MOST_BYTES = 256 << 20


def arguments(_: argparse.ArgumentParser) -> None:
    """None of its own."""


def work(device: program.Device) -> None:
    """GPU after GPU, so that none shares its way with another."""
    torch = device.torch
    cuda = Cuda(torch)
    for gpu in range(cuda.count()):
        torch.cuda.set_device(gpu)
        card = next((each for each in program.cards() if each.gpu == gpu), None)
        near = hardware.numa_of(card.bus) if card else None
        nodes = hardware.numa_nodes()
        for place, node in places.nodes_for(near, None if near is None else hardware.farthest(near, nodes)):
            size = min(MOST_BYTES, copies.size_on(cuda, gpu))
            copies.halving(size, partial(both, cuda, device, gpu, place, node))


def both(cuda: Cuda, device: program.Device, gpu: int, place: str, node: Optional[int], size: int) -> None:
    """To the GPU and from it."""
    buffer = places.Buffer(cuda.torch, size, node)
    try:
        for to_gpu in (True, False):
            options = device.options
            rates = copies.with_host(cuda, gpu, buffer.tensor, to_gpu, options.seconds, options.runs)
            told: Any = {
                "event": "measured",
                "gpu": gpu,
                "to_gpu": to_gpu,
                "place": place,
                "numa": node,
                "numa_found": buffer.lies_on(),
                "bound": buffer.bound,
                "rates": rates.values,
                "wrong": rates.wrong,
                "size_bytes": rates.size_bytes,
                "passes": rates.passes,
                "began": rates.began,
                "ended": rates.ended,
            }
            device.say(told)
    finally:
        buffer.close()


if __name__ == "__main__":
    sys.exit(program.main(work, arguments, on_cpu=False, one_process=True))
