"""Knows a regression task that can be learnt, equal on every host and device, and far smaller than what it feeds."""

from __future__ import annotations

import torch

VOCABULARY = 64
NOISE = 0.1


class Task:
    """`samples` sequences of `length` vectors of `width`, each with one number to predict.

    A sequence is a row of symbols; each symbol has a fixed vector (what the model sees) and a fixed worth; the target
    is the normalised sum of the worths, plus noise of deviation `NOISE`: no model gets below a loss of `NOISE` squared.
    """

    def __init__(self, samples: int, length: int, width: int, seed: int, device: torch.device) -> None:
        # always drawn on the CPU: a GPU's generator gives other numbers
        random = torch.Generator().manual_seed(seed)
        symbols = torch.randint(VOCABULARY, (samples, length), generator=random)
        worth = torch.randn(VOCABULARY, generator=random)
        targets = (worth - worth.mean())[symbols].sum(dim=1) / (worth.std() * length**0.5)
        targets += NOISE * torch.randn(samples, generator=random)
        self.vectors = torch.randn(VOCABULARY, width, generator=random).to(device)
        self.symbols = symbols.to(device)
        self.targets = targets.unsqueeze(1).to(device)

    def __len__(self) -> int:
        return len(self.symbols)

    def batch(self, indices: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
        """Inputs (len(indices), length, width) and targets (len(indices), 1)."""
        where = torch.tensor(indices, device=self.symbols.device)
        return self.vectors[self.symbols[where]], self.targets[where]
