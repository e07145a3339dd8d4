"""Copies between pinned memory of the near and the far NUMA node and each GPU of this host, a GPU at a time."""

from functools import partial
from typing import Optional, Sequence

from . import copies, devices, hardware, places
from .cuda import Cuda

MOST_BYTES = 256 << 20


def work(device: devices.Device) -> None:
    """GPU after GPU, so that none shares its way with another."""
    torch = device.torch
    cuda = Cuda(torch)
    for gpu in range(cuda.count()):
        torch.cuda.set_device(gpu)
        card = devices.card_of(gpu)
        near = hardware.numa_of(card.bus) if card else None
        nodes = hardware.numa_nodes()
        for place, node in places.nodes_for(near, None if near is None else hardware.farthest(near, nodes)):
            size = min(MOST_BYTES, copies.size_on(cuda, gpu))
            copies.halving(size, partial(both, cuda, device, gpu, place, node))


def both(cuda: Cuda, device: devices.Device, gpu: int, place: str, node: Optional[int], size: int) -> None:
    """Measure to the GPU and from it."""
    options = device.options
    buffer = places.Buffer(cuda.torch, size, node)
    try:
        for to_gpu in (True, False):
            rates = copies.with_host(cuda, gpu, buffer.tensor, to_gpu, options.seconds, options.runs)
            device.say(
                event="measured",
                gpu=gpu,
                to_gpu=to_gpu,
                place=place,
                numa=node,
                numa_found=buffer.lies_on(),
                bound=buffer.bound,
                **rates._asdict(),
            )
    finally:
        buffer.close()


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Run `look` or `measure`."""
    return devices.main(argv, work, on_cpu=False, one_process=True)
