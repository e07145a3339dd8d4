"""The task: the sum of what goes in."""

import torch


def batch(rank: int, step: int, width: int) -> tuple[torch.Tensor, torch.Tensor]:
    """16 inputs (16, width) and what is asked of them (16, 1), others on each rank and in each step."""
    chance = torch.Generator().manual_seed(1000 * step + rank)
    inputs = torch.randn(16, width, generator=chance)
    return inputs, inputs.sum(1, keepdim=True)
