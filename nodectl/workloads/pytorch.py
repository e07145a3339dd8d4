"""torch, as the programs' modules use it; if this Python has none, their options can be read all the same."""

from __future__ import annotations

import sys

try:
    import torch
    import torch.distributed as dist
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel
    from torch.utils import checkpoint
except ModuleNotFoundError as error:
    if error.name != "torch":
        raise
    torch = dist = checkpoint = DistributedDataParallel = None

    class _Layers:
        """A base of classes of layers, so that their modules can be read."""

        Module = object

    nn = _Layers


def need() -> None:
    """SystemExit, with what to do, where this Python has no torch."""
    if torch is None:
        raise SystemExit(
            f"{sys.executable} has no torch, and training needs it: `nodectl launch workload:NAME` runs the program in "
            "the hosts' environment, `nodectl provision --tags pytorch` makes that; here `pip install torch` brings it"
        )
