"""Copies within the memory of every GPU of this host at once: GB/s read and written."""

from typing import Optional, Sequence

from . import copies, devices
from .cuda import Cuda


def work(device: devices.Device) -> None:
    """One array into another, both far larger than the cache."""
    gpu, options = device.gpu, device.options
    if gpu is None:
        return
    cuda = Cuda(device.torch)
    how, rates = copies.halving(
        copies.size_on(cuda, gpu),
        lambda size: copies.within(cuda, gpu, size, options.seconds, options.runs, device.ready),
    )
    measured = rates._asdict()
    array_bytes, cache_bytes = measured.pop("size_bytes"), cuda.cache_bytes(gpu)
    device.say(event="measured", gpu=gpu, how=how, array_bytes=array_bytes, cache_bytes=cache_bytes, **measured)


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Run `look` or `measure`."""
    return devices.main(argv, work, on_cpu=False)
