"""The reference training program: a small transformer encoder trained data-parallel, timed, saved and resumed.

Run it under torchrun over many hosts, or by itself. The last line of rank 0 is a JSON summary.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch
    from torch import nn

    from nodectl.workloads import texts
    from nodectl.workloads.options import start
    from nodectl.workloads.settings import Settings, at_least, number
    from nodectl.workloads.workload import Batch, Data, Workload
else:  # on a node these files lie in one folder, without the package
    import texts
    from options import start
    from pytorch import nn, torch
    from settings import at_least, number
    from workload import Data, Workload

VOCABULARY = 64
NOISE = 0.1
BEFORE = "before"
# of a layer, over its width: four matrices of attention, two of the feed-forward part with four times the width
_FEED_FORWARD = 4
_MATRICES = 4 + 2 * _FEED_FORWARD

_ARTICLE_0 = {
    "layers": 6,
    "d_model": 512,
    "heads": 8,
    "seq": 128,
    "dropout": 0.1,
    "norms": "after",
    "batch": 32,
    "samples": 1024,
    "epochs": 10,
    "optimizer": "adam",
    "lr": 1e-3,
    "schedule": "constant",
    "clip": 0.0,
    "precision": "fp32",
}

# it names neither layers nor width; its learning rate falls by epochs, here by steps
_ARTICLE_1 = {
    "learn": "text",
    "batch": 128,
    "optimizer": "adamw",
    "lr": 1e-4,
    "weight_decay": 0.01,
    "schedule": "cosine",
    "clip": 1.0,
    "precision": "auto",
    "workers": 8,
    "pin_memory": True,
}


class Task(Data):
    """A regression task that can be learnt, equal on every host and device, and far smaller than what it feeds.

    `samples` sequences of `length` vectors of `width`, each with one number to predict.

    A sequence is a row of symbols; each symbol has a fixed vector (what the model sees) and a fixed worth; the target
    is the normalised sum of the worths, plus noise of deviation `NOISE`: no model gets below a loss of `NOISE` squared.
    """

    words = "synthetic vectors"

    def __init__(self, samples: int, length: int, width: int, seed: int) -> None:
        # always drawn on the CPU: a GPU's generator gives other numbers
        random = torch.Generator().manual_seed(seed)
        self.symbols = torch.randint(VOCABULARY, (samples, length), generator=random)
        worth = torch.randn(VOCABULARY, generator=random)
        targets = (worth - worth.mean())[self.symbols].sum(dim=1) / (worth.std() * length**0.5)
        targets += NOISE * torch.randn(samples, generator=random)
        self.vectors = torch.randn(VOCABULARY, width, generator=random)
        self.targets = targets.unsqueeze(1)

    def __len__(self) -> int:
        return len(self.symbols)

    def batch(self, indices: Sequence[int], epoch: int) -> Batch:
        """Return inputs (len(indices), length, width) and targets (len(indices), 1)."""
        where = torch.tensor(indices)
        return self.vectors[self.symbols[where]], self.targets[where]


class Encoder(nn.Module):  # type: ignore[misc]  # torch is not there where mypy runs
    """Encoder, mean over the sequence, one number a sample."""

    def __init__(self, layers: int, d_model: int, heads: int, dropout: float, norms: str) -> None:
        super().__init__()
        first = norms == BEFORE
        layer = nn.TransformerEncoderLayer(
            d_model, heads, _FEED_FORWARD * d_model, dropout=dropout, batch_first=True, norm_first=first
        )
        last = nn.LayerNorm(d_model) if first else None
        self.encoder = nn.TransformerEncoder(layer, layers, norm=last, enable_nested_tensor=False)
        self.head = nn.Linear(d_model, 1)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """(batch, seq, d_model) to (batch, 1)."""
        answer: torch.Tensor = self.head(self.encoder(inputs).mean(dim=1))
        return answer


class Reader(Encoder):
    """The same on tokens, each of which sees those before it: for each place how likely each token comes next."""

    def __init__(self, layers: int, d_model: int, heads: int, dropout: float, norms: str, seq: int) -> None:
        super().__init__(layers, d_model, heads, dropout, norms)
        self.tokens = nn.Embedding(texts.VOCABULARY, d_model)
        self.places = nn.Embedding(seq, d_model)
        self.head = nn.Linear(d_model, texts.VOCABULARY)
        later = torch.ones(seq, seq, dtype=torch.bool).triu(diagonal=1)
        self.register_buffer("later", later, persistent=False)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """(batch, seq) to (batch, seq, vocabulary)."""
        embedded = self.tokens(inputs) + self.places.weight
        answer: torch.Tensor = self.head(self.encoder(embedded, mask=self.later))
        return answer


class Transformer(Workload):
    """A regression by an encoder, its loss the mean squared error; or the next byte of a text, by cross entropy."""

    name = "transformer"
    summary = "Train a small transformer encoder on synthetic data, or on text."
    presets = MappingProxyType({"article-0": _ARTICLE_0, "article-1": _ARTICLE_1})

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        """Its shape, and what it learns."""
        parser.add_argument(
            "--learn", choices=("numbers", "text"), default="numbers", help="a number of each sample, or its next bytes"
        )
        parser.add_argument("--text", type=Path, help="folder of files for --learn text; without it text is made up")
        parser.add_argument("--layers", type=at_least(1), default=6, help="encoder layers")
        parser.add_argument("--d-model", type=at_least(1), default=512, help="width of the model")
        parser.add_argument("--heads", type=at_least(1), default=8, help="attention heads")
        # the other order needs a warm-up of the learning rate to train six layers at 1e-3
        parser.add_argument(
            "--norms",
            choices=(BEFORE, "after"),
            default=BEFORE,
            help="before each part of a layer, and one at the end; or after each, as torch's layers have them",
        )
        parser.add_argument("--seq", type=at_least(1), default=128, help="vectors or bytes in a sample")
        parser.add_argument("--dropout", type=number(0.0), default=0.1, help="share of activations dropped")

    def check(self, settings: Settings) -> None:
        """Every head has the same width."""
        options = settings.own
        if options.d_model % options.heads:
            raise ValueError(f"--d-model {options.d_model} cannot be shared among --heads {options.heads}")
        if options.dropout >= 1:
            raise ValueError(f"--dropout {options.dropout:g} leaves nothing: it is a share below 1")

    def identity(self, settings: Settings) -> dict[str, Any]:
        """Its shape."""
        shape = {name: getattr(settings.own, name) for name in ("layers", "d_model", "heads")}
        if settings.own.norms != BEFORE:
            shape["norms"] = settings.own.norms
        return {**shape, "seq": settings.own.seq, "learn": "text"} if settings.own.learn == "text" else shape

    def data(self, settings: Settings) -> Data:
        """Drawn from the seed, or read from a folder of files."""
        if settings.own.learn == "text":
            return texts.read(settings.own.text, settings.own.seq, settings.samples, settings.seed)
        return Task(settings.samples, settings.own.seq, settings.own.d_model, settings.seed)

    def model(self, settings: Settings) -> nn.Module:
        """Return an encoder."""
        options = settings.own
        if options.learn == "text":
            return Reader(options.layers, options.d_model, options.heads, options.dropout, options.norms, options.seq)
        return Encoder(options.layers, options.d_model, options.heads, options.dropout, options.norms)

    def loss(self, answer: torch.Tensor, batch: Batch) -> torch.Tensor:
        """Mean squared error; of text cross entropy."""
        if batch[-1].is_floating_point():
            error: torch.Tensor = nn.functional.mse_loss(answer.float(), batch[-1])
        else:
            error = nn.functional.cross_entropy(answer.float().flatten(0, 1), batch[-1].flatten())
        return error

    def blocks(self, model: nn.Module) -> Sequence[nn.Module]:
        """Return the encoder's layers."""
        return tuple(model.encoder.layers)

    def flops_per_sample(self, settings: Settings, model: nn.Module) -> float:
        """6 for each weight of the matrices and each vector, and 12 x width x sequence for attention of each layer."""
        options = settings.own
        a_vector = options.layers * (6 * _MATRICES * options.d_model**2 + 12 * options.d_model * options.seq)
        if options.learn == "text":
            a_vector += 6 * options.d_model * texts.VOCABULARY
        return float(options.seq * a_vector)


if __name__ == "__main__":
    start(Transformer())
