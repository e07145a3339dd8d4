"""Layers whose activations are computed again in the backward pass instead of kept, and layers that are compiled."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch
    from torch import nn
    from torch.utils import checkpoint
else:  # on a node these files lie in one folder, without the package
    from pytorch import checkpoint, nn, torch

MODES = ("none", "full", "selective")


def apply(blocks: Sequence[nn.Module], mode: str) -> None:
    """Let these layers keep their inputs alone (full), or also what matrix products and attention gave (selective).

    Parameters keep their names. SystemExit where this torch cannot.
    """
    if mode == "none":
        return
    more: dict[str, Any] = {"context_fn": partial(_contexts(), _keep)} if mode == "selective" else {}
    for block in blocks:
        block.forward = _again(block.forward, more)


def _again(forward: Callable[..., torch.Tensor], more: dict[str, Any]) -> Callable[..., torch.Tensor]:
    def recomputed(*arguments: torch.Tensor) -> torch.Tensor:
        answer: torch.Tensor = checkpoint.checkpoint(forward, *arguments, use_reentrant=False, **more)
        return answer

    return recomputed


def _contexts() -> Callable[..., Any]:
    contexts: Any = getattr(checkpoint, "create_selective_checkpoint_contexts", None)
    if contexts is None:
        raise SystemExit(
            f"--recompute selective needs torch 2.4 (this is {torch.__version__}): take full, or a newer torch"
        )
    return contexts  # type: ignore[no-any-return]


def _keep(context: Any, operation: Any, *_: Any, **__: Any) -> Any:
    """Return what is dear to compute: matrix products, and attention by torch's kernels."""
    name = str(operation)
    dear = "attention" in name or name.startswith(("aten.mm.", "aten.bmm.", "aten.addmm.", "aten._scaled_mm."))
    policy: Any = checkpoint.CheckpointPolicy
    return policy.MUST_SAVE if dear else policy.PREFER_RECOMPUTE


def compile_blocks(blocks: Sequence[nn.Module]) -> None:
    """Compile each of these layers in its place: equal ones share their code. SystemExit where this torch cannot."""
    for block in blocks:
        if not hasattr(block, "compile"):
            raise SystemExit(
                f"--compile needs torch 2.3 (this is {torch.__version__}): leave it out, or take a newer torch"
            )
        block.compile()
