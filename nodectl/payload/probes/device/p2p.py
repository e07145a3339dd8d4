"""Copies between all pairs of GPUs of this host, one pair at a time: one direction, the other, and both at once."""

import itertools
from functools import partial
from typing import List, Optional, Sequence, Tuple

from . import copies, devices
from .cuda import Cuda

MOST_BYTES = 256 << 20
WAYS = ("direct", "staged")


def work(device: devices.Device) -> None:
    """Each pair both ways: as CUDA copies between them, and through the host's memory."""
    cuda = Cuda(device.torch)
    for one, other in itertools.combinations(range(cuda.count()), 2):
        size = min(MOST_BYTES, copies.size_on(cuda, one, other))
        copies.halving(size, partial(pair, cuda, device, one, other))


def pair(cuda: Cuda, device: devices.Device, one: int, other: int, size: int) -> None:
    """There, back, and both."""
    there, back = copies.Pair(cuda, one, other, size), copies.Pair(cuda, other, one, size)
    for way in WAYS:
        cases: List[Tuple[int, int, List[copies.Pair]]] = [
            (one, other, [there]),
            (other, one, [back]),
            (one, other, [there, back]),
        ]
        for source, target, pairs in cases:
            rates = copies.between(cuda, pairs, way, device.options.seconds, device.options.runs)
            reach_back = len(pairs) < 2 or cuda.can_reach(target, source)
            device.say(
                event="measured",
                gpu=source,
                target=target,
                way=way,
                bidirectional=len(pairs) == 2,
                peer_access=cuda.can_reach(source, target) and reach_back,
                **rates._asdict(),
            )


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Run `look` or `measure`."""
    return devices.main(argv, work, on_cpu=False, one_process=True)
