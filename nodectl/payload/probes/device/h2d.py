"""Copies between pinned memory of the near and the far NUMA node and each GPU of this host, a GPU at a time."""

import ctypes
import mmap
import os
import platform
from collections import Counter
from functools import partial
from typing import Any, Dict, Optional, Sequence, Tuple

from ...common.machine import cpus_of
from . import copies, devices, hardware
from .cuda import Cuda

_SYSCALLS = {"x86_64": (237, 279), "aarch64": (235, 239)}  # mbind, move_pages
_BIND, _STRICT_MOVE = 2, 3  # MPOL_BIND; MPOL_MF_STRICT | MPOL_MF_MOVE
_PORTABLE = 1  # cudaHostRegisterPortable
_LOOKED_AT = 64


class Buffer:
    """`size` bytes of one node (None: wherever the kernel puts them), as a tensor of bytes; `close` gives them back."""

    def __init__(self, torch: Any, size: int, node: Optional[int], *, pin: bool = True) -> None:
        self._torch, self._map = torch, mmap.mmap(-1, size)
        self.address = ctypes.addressof(ctypes.c_char.from_buffer(self._map))
        self.node, self.size = node, size
        self.bound = node is not None and bind(self.address, size, node)
        before = os.sched_getaffinity(0)
        node_cpus = set(cpus_of(node)) & before if node is not None else set()
        if node_cpus:  # where binding is refused (containers), the first touch decides
            os.sched_setaffinity(0, node_cpus)
        try:
            ctypes.memset(self.address, 0, size)
        finally:
            os.sched_setaffinity(0, before)
        self._pinned = pin and self._register()
        self.tensor = torch.frombuffer(self._map, dtype=torch.uint8)

    def lies_on(self) -> Optional[int]:
        """Return the node of most of some of its pages; None if the kernel does not tell."""
        pages = where(self.address, self.size)
        return max(pages, key=lambda node: pages[node]) if pages else None

    def close(self) -> None:
        """Give the pinned memory back."""
        if self._pinned:
            self._torch.cuda.cudart().cudaHostUnregister(self.address)
            self._pinned = False

    def _register(self) -> bool:
        status = int(self._torch.cuda.cudart().cudaHostRegister(self.address, self.size, _PORTABLE))
        if status:
            raise RuntimeError("cannot pin %d MiB of host memory: CUDA error %d" % (self.size >> 20, status))
        return True


def bind(address: int, size: int, node: int) -> bool:
    """Have the pages of this stretch come from that node alone; False if the kernel refuses."""
    bits = 8 * ctypes.sizeof(ctypes.c_ulong)
    mask = (ctypes.c_ulong * (node // bits + 1))()
    mask[node // bits] = 1 << node % bits
    return _call(
        0,
        ctypes.c_void_p(address),
        ctypes.c_ulong(size),
        ctypes.c_int(_BIND),
        mask,
        ctypes.c_ulong(len(mask) * bits + 1),
        ctypes.c_uint(_STRICT_MOVE),
    )


def where(address: int, size: int) -> Dict[int, int]:
    """Pages by node, of some spread over the stretch; empty if the kernel does not tell."""
    page = mmap.PAGESIZE
    step = max(page, size // _LOOKED_AT // page * page)
    pages = [address + offset for offset in range(0, size, step)]
    status = (ctypes.c_int * len(pages))()
    asked = (ctypes.c_void_p * len(pages))(*pages)
    if not _call(1, ctypes.c_int(0), ctypes.c_ulong(len(pages)), asked, None, status, ctypes.c_int(0)):
        return {}
    return dict(Counter(node for node in status if node >= 0))


def nodes_for(near: Optional[int], far: Optional[int]) -> Sequence[Tuple[str, Optional[int]]]:
    """Return what is measured: near and far if both are known, else memory wherever it comes from."""
    if near is None:
        return (("any", None),)
    return (("near", near),) if far is None else (("near", near), ("far", far))


def _call(which: int, *args: Any) -> bool:
    numbers = _SYSCALLS.get(platform.machine())
    if numbers is None:
        return False
    return int(ctypes.CDLL(None, use_errno=True).syscall(ctypes.c_long(numbers[which]), *args)) == 0


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
