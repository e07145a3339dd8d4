"""Layers whose activations are computed again in the backward pass instead of kept, and layers that are compiled."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch
    from torch import nn
    from torch.utils import checkpoint
else:  # on a node these files lie in one folder, without the package
    from pytorch import checkpoint, nn, torch

MODES = ("none", "full")


def apply(blocks: Sequence[nn.Module]) -> None:
    """Let these layers keep their inputs alone; parameters keep their names."""
    for block in blocks:
        block.forward = _again(block.forward)


def _again(forward: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    def recomputed(*arguments: torch.Tensor) -> torch.Tensor:
        answer: torch.Tensor = checkpoint.checkpoint(forward, *arguments, use_reentrant=False)
        return answer

    return recomputed


def compile_blocks(blocks: Sequence[nn.Module]) -> None:
    """Compile each of these layers in its place: equal ones share their code. SystemExit where this torch cannot."""
    for block in blocks:
        if not hasattr(block, "compile"):
            raise SystemExit(
                f"--compile needs torch 2.3 (this is {torch.__version__}): leave it out, or take a newer torch"
            )
        block.compile()
