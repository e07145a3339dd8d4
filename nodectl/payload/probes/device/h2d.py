"""Copies between pinned memory of the near and the far NUMA node and each GPU of this host, a GPU at a time."""

import ctypes
import mmap
import os
from functools import partial
from typing import Any, Optional, Sequence, Tuple

from ...common.machine import cpus_of
from . import copies, devices, hardware
from .cuda import Cuda

_PORTABLE = 1  # cudaHostRegisterPortable


class Buffer:
    """`size` pinned bytes of one NUMA node (None: any), as a tensor of bytes; `close` releases them."""

    def __init__(self, torch: Any, size: int, node: Optional[int]) -> None:
        self._torch, self._map = torch, mmap.mmap(-1, size)
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self._map))
        before = os.sched_getaffinity(0)
        # a page lies on the node of the processor that touches it first
        os.sched_setaffinity(0, (set(cpus_of(node)) & before if node is not None else set()) or before)
        try:
            ctypes.memset(self.address, 0, size)
        finally:
            os.sched_setaffinity(0, before)
        status = int(torch.cuda.cudart().cudaHostRegister(self.address, size, _PORTABLE))
        if status:
            raise RuntimeError("cannot pin %d MiB of host memory: CUDA error %d" % (size >> 20, status))
        self.tensor = torch.frombuffer(self._map, dtype=torch.uint8)

    def close(self) -> None:
        """Release the pinned memory."""
        self._torch.cuda.cudart().cudaHostUnregister(self.address)


def nodes_for(near: Optional[int], far: Optional[int]) -> Sequence[Tuple[str, Optional[int]]]:
    """Return what is measured: near and far if both are known, else memory wherever it comes from."""
    if near is None:
        return (("any", None),)
    return (("near", near),) if far is None else (("near", near), ("far", far))


MOST_BYTES = 256 << 20


def work(device: devices.Device) -> None:
    """GPU after GPU, so that none shares its way with another."""
    torch = device.torch
    cuda = Cuda(torch)
    for gpu in range(torch.cuda.device_count()):
        torch.cuda.set_device(gpu)
        card = devices.card_of(gpu)
        near = hardware.numa_of(card.bus) if card else None
        nodes = hardware.numa_nodes()
        for place, node in nodes_for(near, None if near is None else hardware.farthest(near, nodes)):
            size = min(MOST_BYTES, copies.size_on(cuda, gpu))
            copies.halving(size, partial(both, cuda, device, gpu, place, node))


def both(cuda: Cuda, device: devices.Device, gpu: int, place: str, node: Optional[int], size: int) -> None:
    """Measure to the GPU and from it."""
    options = device.options
    buffer = Buffer(cuda.torch, size, node)
    try:
        for to_gpu in (True, False):
            rates = copies.with_host(cuda, gpu, buffer.tensor, to_gpu, options.seconds, options.runs)
            device.say(event="measured", gpu=gpu, to_gpu=to_gpu, place=place, numa=node, **rates._asdict())
    finally:
        buffer.close()


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Run `look` or `measure`."""
    return devices.main(argv, work, on_cpu=False, one_process=True)
