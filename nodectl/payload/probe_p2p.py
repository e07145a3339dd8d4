"""Copies between all pairs of GPUs of this host, one pair at a time: one direction, the other, and both at once.

JSON lines; Python 3.8, the standard library and torch.
"""

import argparse
import itertools
import sys
from functools import partial
from typing import TYPE_CHECKING, List, Tuple

if TYPE_CHECKING or __name__.startswith("nodectl."):
    from nodectl.payload.gpubench import copies, program
    from nodectl.payload.gpubench.cuda import Cuda
else:  # on a node this folder is sys.path[0], and there is no nodectl
    from gpubench import copies, program
    from gpubench.cuda import Cuda

MOST_BYTES = 256 << 20
WAYS = ("direct", "staged")


def arguments(_: argparse.ArgumentParser) -> None:
    """None of its own."""


def work(device: program.Device) -> None:
    """Each pair both ways: as CUDA copies between them, and through the host's memory."""
    measure(Cuda(device.torch), device)


def measure(cuda: Cuda, device: program.Device) -> None:
    """All pairs."""
    for one, other in itertools.combinations(range(cuda.count()), 2):
        size = min(MOST_BYTES, copies.size_on(cuda, one, other))
        copies.halving(size, partial(pair, cuda, device, one, other))


def pair(cuda: Cuda, device: program.Device, one: int, other: int, size: int) -> None:
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
            device.say(
                {
                    "event": "measured",
                    "gpu": source,
                    "target": target,
                    "way": way,
                    "bidirectional": len(pairs) == 2,
                    "peer_access": cuda.can_reach(source, target)
                    and (len(pairs) < 2 or cuda.can_reach(target, source)),
                    "rates": rates.values,
                    "wrong": rates.wrong,
                    "size_bytes": rates.size_bytes,
                    "passes": rates.passes,
                    "began": rates.began,
                    "ended": rates.ended,
                }
            )


if __name__ == "__main__":
    sys.exit(program.main(work, arguments, on_cpu=False, one_process=True))
