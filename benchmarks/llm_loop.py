"""A decoder trained by a plain torch loop, as somebody would write it by hand: what the `llm` workload is held against.

    torchrun --nproc-per-node N benchmarks/llm_loop.py --layers 16 --hidden 2048 …

It knows nothing of nodectl. RMSNorm, rotary positions, causal attention by torch's kernels, a gated MLP, AdamW, bf16 by
autocast on a GPU. The last line is JSON: samples per second of all ranks, median of the steps after the warm-up.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional

WARMUP_STEPS = 10


class Attention(nn.Module):  # type: ignore[misc]  # torch is not there where mypy runs
    """Causal, with rotary positions."""

    def __init__(self, hidden: int, heads: int) -> None:
        super().__init__()
        self.heads, self.width = heads, hidden // heads
        self.qkv = nn.Linear(hidden, 3 * hidden, bias=False)
        self.out = nn.Linear(hidden, hidden, bias=False)

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        """(batch, seq, hidden)."""
        batch, seq, hidden = x.shape
        q, k, v = self.qkv(x).view(batch, seq, 3, self.heads, self.width).permute(2, 0, 3, 1, 4)
        q, k = _turned(q, cos, sin), _turned(k, cos, sin)
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        answer: torch.Tensor = self.out(mixed.transpose(1, 2).reshape(batch, seq, hidden))
        return answer


def _turned(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    one, other = x.chunk(2, dim=-1)
    return torch.cat((one * cos - other * sin, one * sin + other * cos), dim=-1).to(x.dtype)


class Block(nn.Module):  # type: ignore[misc]
    """Attention and a gated MLP, each behind a norm."""

    def __init__(self, hidden: int, heads: int, intermediate: int) -> None:
        super().__init__()
        self.before, self.between = nn.RMSNorm(hidden), nn.RMSNorm(hidden)
        self.attention = Attention(hidden, heads)
        self.gate, self.up = (nn.Linear(hidden, intermediate, bias=False) for _ in range(2))
        self.down = nn.Linear(intermediate, hidden, bias=False)

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        """(batch, seq, hidden)."""
        x = x + self.attention(self.before(x), cos, sin)
        y = self.between(x)
        return x + self.down(functional.silu(self.gate(y)) * self.up(y))


class Model(nn.Module):  # type: ignore[misc]
    """Tokens to scores of the next ones."""

    def __init__(self, asked: argparse.Namespace) -> None:
        super().__init__()
        self.table = nn.Embedding(asked.vocabulary, asked.hidden)
        self.blocks = nn.ModuleList(Block(asked.hidden, asked.heads, asked.intermediate) for _ in range(asked.layers))
        self.norm = nn.RMSNorm(asked.hidden)
        self.head = nn.Linear(asked.hidden, asked.vocabulary, bias=False)
        width = asked.hidden // asked.heads
        angles = torch.outer(torch.arange(asked.seq), 10000.0 ** (-torch.arange(0, width, 2) / width))
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """(batch, seq) to (batch, seq, vocabulary)."""
        x = self.table(tokens)
        for block in self.blocks:
            x = block(x, self.cos, self.sin)
        answer: torch.Tensor = self.head(self.norm(x))
        return answer


def main() -> None:
    """Train on random tokens; print the speed."""
    parser = argparse.ArgumentParser()
    for name in ("layers", "hidden", "intermediate", "heads", "vocabulary", "seq", "batch", "steps"):
        parser.add_argument(f"--{name}", type=int, required=True)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    asked = parser.parse_args()
    local, world = int(os.environ.get("LOCAL_RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    device = torch.device(asked.device, local) if asked.device == "cuda" else torch.device("cpu")
    if asked.device == "cuda":
        torch.cuda.set_device(device)
    if world > 1:
        dist.init_process_group("nccl" if asked.device == "cuda" else "gloo")
    torch.manual_seed(0)
    model: Any = Model(asked).to(device)
    if world > 1:
        model = nn.parallel.DistributedDataParallel(model, device_ids=[local] if asked.device == "cuda" else None)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=asked.device == "cuda")
    durations = []
    for _ in range(asked.steps):
        tokens = torch.randint(asked.vocabulary, (asked.batch, asked.seq + 1)).to(device)
        began = time.perf_counter()
        with torch.autocast(asked.device, torch.bfloat16, enabled=asked.device == "cuda"):
            scores = model(tokens[:, :-1])
        loss = functional.cross_entropy(scores.float().flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if asked.device == "cuda":
            torch.cuda.synchronize(device)
        durations.append(time.perf_counter() - began)
    step_s = statistics.median(durations[min(WARMUP_STEPS, asked.steps // 2) :])
    if local == 0:
        print(json.dumps({"samples_per_s": world * asked.batch / step_s, "last_loss": float(loss)}), flush=True)
    if world > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
