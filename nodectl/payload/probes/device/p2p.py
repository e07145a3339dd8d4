"""Copies between all pairs of GPUs of this host, one pair at a time: one direction, the other, and both at once."""

import itertools
from functools import partial
from typing import List, Optional, Sequence, Tuple

from . import copies, devices
from .cuda import Cuda

MOST_BYTES = 256 << 20


def work(device: devices.Device) -> None:
    """Each pair of GPUs."""
    cuda = Cuda(device.torch)
    for one, other in itertools.combinations(range(device.torch.cuda.device_count()), 2):
        size = min(MOST_BYTES, copies.size_on(cuda, one, other))
        copies.halving(size, partial(pair, cuda, device, one, other))


def pair(cuda: Cuda, device: devices.Device, one: int, other: int, size: int) -> None:
    """There, back, and both."""
    there, back = copies.Pair(cuda, one, other, size), copies.Pair(cuda, other, one, size)
    can_reach = device.torch.cuda.can_device_access_peer
    reach = bool(can_reach(one, other)), bool(can_reach(other, one))
    cases: List[Tuple[int, int, List[copies.Pair], bool]] = [
        (one, other, [there], reach[0]),
        (other, one, [back], reach[1]),
        (one, other, [there, back], all(reach)),
    ]
    for source, target, pairs, peer_access in cases:
        rates = copies.between(cuda, pairs, device.options.seconds, device.options.runs)
        device.say(
            event="measured",
            gpu=source,
            target=target,
            bidirectional=len(pairs) == 2,
            peer_access=peer_access,
            **rates._asdict(),
        )


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Run `look` or `measure`."""
    return devices.main(argv, work, on_cpu=False, one_process=True)
