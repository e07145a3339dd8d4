"""A decoder whose matrices are shared among ranks by columns and rows, by torch's tensor parallelism."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import nn

if TYPE_CHECKING:
    from nodectl.workloads.decoder import Decoder

try:
    from torch.distributed.tensor import Replicate, Shard
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        PrepareModuleInput,
        RowwiseParallel,
        SequenceParallel,
        parallelize_module,
    )
except ImportError as error:
    raise SystemExit(f"--tensor needs torch 2.5 (this is {torch.__version__}): take a newer torch") from error


def split(model: Decoder, mesh: Any) -> None:
    """Share the parameters among the ranks of `mesh`; between matrices the sequence is shared.

    Of each pair of matrices the first gives columns (whole heads) and the second takes them as rows, so that ranks meet
    twice a layer and direction; norms work on the own part of the sequence (Korthikanti et al., 2022).
    """
    parallelize_module(
        model, mesh, {name: style for name, style in _ends().items() if getattr(model, name) is not None}
    )
    for block in model.layers.values():
        parallelize_module(block, mesh, _layer(block))


def _ends() -> dict[str, Any]:
    return {
        "embed": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)),
        "norm": SequenceParallel(),
        "head": ColwiseParallel(input_layouts=Shard(1), output_layouts=Replicate()),
    }


def _layer(block: nn.Module) -> dict[str, Any]:
    first = {name: ColwiseParallel() for name in ("attention.query", "attention.key", "attention.value")}
    first.update({f"mlp.{name}": ColwiseParallel() for name in ("gate", "up") if hasattr(block.mlp, name)})
    return {
        "attention_norm": SequenceParallel(),
        "mlp_norm": SequenceParallel(),
        # the second is the table of rotations, which every rank has
        "attention": PrepareModuleInput(input_layouts=(Shard(1), None), desired_input_layouts=(Replicate(), None)),
        "mlp": PrepareModuleInput(input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),)),
        **first,
        "attention.out": RowwiseParallel(output_layouts=Shard(1)),
        "mlp.down": RowwiseParallel(output_layouts=Shard(1)),
    }
