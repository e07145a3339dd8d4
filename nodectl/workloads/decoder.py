"""A decoder of the kind that language models are: its sizes, its layers, its parts."""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch
    from torch import nn
else:  # on a node these files lie in one folder, without the package
    from pytorch import nn, torch

MLPS = ("gated", "plain")
ROTATION_BASE = 10_000.0
DEVIATION = 0.02


@dataclass(frozen=True)
class Sizes:
    """Hold what decides the shape of a decoder; `positions` is the longest sequence that it takes."""

    vocabulary: int
    hidden: int
    intermediate: int
    heads: int
    layers: int
    positions: int
    mlp: str

    def check(self) -> None:
        """Raise ValueError where heads cannot share the width in equal, even parts."""
        if self.hidden % self.heads or (self.hidden // self.heads) % 2:
            raise ValueError(
                f"--hidden {self.hidden} cannot be shared among --heads {self.heads}: "
                "each head needs the same even number of columns"
            )

    @property
    def parameters(self) -> int:
        """How many numbers are learnt, by the sizes alone."""
        matrices = 3 if self.mlp == "gated" else 2
        layer = 4 * self.hidden**2 + matrices * self.hidden * self.intermediate + 2 * self.hidden
        return 2 * self.embedding + self.layers * layer + self.hidden

    @property
    def embedding(self) -> int:
        """Parameters of the table that turns tokens into vectors: looked up, not multiplied, so no FLOPs."""
        return self.vocabulary * self.hidden


def flops_per_token(sizes: Sizes, length: int) -> float:
    """FLOPs of forward and backward: 6N, and 12 layers x hidden x length for the attention scores.

    Chowdhery et al. (PaLM), appendix B.
    """
    return float(6 * (sizes.parameters - sizes.embedding) + 12 * sizes.layers * sizes.hidden * length)


class Decoder(nn.Module):  # type: ignore[misc]  # torch is not there where mypy runs
    """Tokens (batch, length) to logits (batch, length, vocabulary)."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.sizes = sizes
        self.embed: nn.Module | None = nn.Embedding(sizes.vocabulary, sizes.hidden)
        # a dictionary, so that a part of the model names its layers as the whole does
        self.layers = nn.ModuleDict({str(index): Block(sizes) for index in range(sizes.layers)})
        self.norm: nn.Module | None = norm(sizes.hidden)
        self.head: nn.Module | None = nn.Linear(sizes.hidden, sizes.vocabulary, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Compute a part of the model, from and to the values between layers, (batch, length, hidden)."""
        answer = tokens if self.embed is None else self.embed(tokens)
        turns = rotation(self.sizes.positions, self.sizes.hidden // self.sizes.heads, answer.device)
        for block in self.layers.values():
            answer = block(answer, turns)
        if self.norm is not None and self.head is not None:
            answer = self.head(self.norm(answer))
        return answer

    def keep(self, stage: int, stages: int) -> None:
        """Become one of `stages` equal parts: the first has the embedding, the last norm and head."""
        names = list(self.layers)
        layers_per_stage = len(names) // stages
        for name in names[: stage * layers_per_stage] + names[(stage + 1) * layers_per_stage :]:
            del self.layers[name]
        if stage > 0:
            self.embed = None
        if stage < stages - 1:
            self.norm = self.head = None


class Block(nn.Module):  # type: ignore[misc]
    """One layer: attention and MLP, each behind a norm and beside the residual."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.attention_norm = norm(sizes.hidden)
        self.attention = Attention(sizes)
        self.mlp_norm = norm(sizes.hidden)
        self.mlp = Gated(sizes) if sizes.mlp == "gated" else Plain(sizes)

    def forward(self, inputs: torch.Tensor, turns: torch.Tensor) -> torch.Tensor:
        """(batch, length, hidden) to the same; `turns` from `rotation`."""
        between: torch.Tensor = inputs + self.attention(self.attention_norm(inputs), turns)
        answer: torch.Tensor = between + self.mlp(self.mlp_norm(between))
        return answer


class Attention(nn.Module):  # type: ignore[misc]
    """Causal attention of many heads; positions are told by rotation."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.width = sizes.hidden // sizes.heads
        for name in ("query", "key", "value", "out"):
            setattr(self, name, nn.Linear(sizes.hidden, sizes.hidden, bias=False))

    def forward(self, inputs: torch.Tensor, turns: torch.Tensor) -> torch.Tensor:
        """(batch, length, hidden) to the same; as many heads as the own columns hold."""
        columns = (project(inputs) for project in (self.query, self.key, self.value))
        query, key, value = (each.unflatten(2, (-1, self.width)).transpose(1, 2) for each in columns)
        seen = nn.functional.scaled_dot_product_attention(
            rotated(query, turns), rotated(key, turns), value, is_causal=True
        )
        answer: torch.Tensor = self.out(seen.transpose(1, 2).flatten(2))
        return answer


class Gated(nn.Module):  # type: ignore[misc]
    """MLP of three matrices: what goes up is weighed by a gate."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.gate = nn.Linear(sizes.hidden, sizes.intermediate, bias=False)
        self.up = nn.Linear(sizes.hidden, sizes.intermediate, bias=False)
        self.down = nn.Linear(sizes.intermediate, sizes.hidden, bias=False)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """(batch, length, hidden) to the same."""
        answer: torch.Tensor = self.down(nn.functional.silu(self.gate(inputs)) * self.up(inputs))
        return answer


class Plain(nn.Module):  # type: ignore[misc]
    """MLP of two matrices."""

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.up = nn.Linear(sizes.hidden, sizes.intermediate, bias=False)
        self.down = nn.Linear(sizes.intermediate, sizes.hidden, bias=False)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """(batch, length, hidden) to the same."""
        answer: torch.Tensor = self.down(nn.functional.gelu(self.up(inputs)))
        return answer


class RootMeanSquare(nn.Module):  # type: ignore[misc]
    """Norm without mean and bias; torch has one of its own since 2.4."""

    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.epsilon = eps
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return the same shape; computed in float32."""
        wide = inputs.float()
        scale = torch.rsqrt(wide.pow(2).mean(dim=-1, keepdim=True) + self.epsilon)
        return (wide * scale).to(inputs.dtype) * self.weight


def norm(width: int) -> nn.Module:
    """Return a norm over the model's width."""
    return getattr(nn, "RMSNorm", RootMeanSquare)(width, eps=1e-5)


def rotation(positions: int, width: int, device: torch.device) -> torch.Tensor:
    """Cosines and sines, (2, positions, width / 2), by which pairs of a head's columns are turned at each position."""
    rates = ROTATION_BASE ** (-torch.arange(0, width, 2, device=device, dtype=torch.float32) / width)
    angles = torch.arange(positions, device=device, dtype=torch.float32)[:, None] * rates
    return torch.stack((angles.cos(), angles.sin()))


def rotated(heads: torch.Tensor, turns: torch.Tensor) -> torch.Tensor:
    """(batch, heads, length, width) with each pair of columns turned, in the same type."""
    cosine, sine = turns[:, : heads.shape[2]]
    left, right = heads.float().chunk(2, dim=-1)
    return torch.cat((left * cosine - right * sine, right * cosine + left * sine), dim=-1).to(heads.dtype)


def initial(name: str, shape: Sequence[int], layers: int, seed: int) -> torch.Tensor:
    """Return the first values of one parameter, on the CPU: the same on every rank, whatever else a rank holds."""
    if name.endswith("norm.weight"):
        return torch.ones(*shape)
    random = torch.Generator().manual_seed(seed * 2**32 + zlib.crc32(name.encode()))
    # what is added to the residual by each of 2 x layers must not let it grow
    deviation = DEVIATION / math.sqrt(2 * layers) if name.endswith(("out.weight", "down.weight")) else DEVIATION
    return torch.empty(*shape).normal_(0, deviation, generator=random)
