"""The language model program: a decoder trained on the bytes of a text.

Run it under torchrun over many hosts, or by itself. The last line of rank 0 is a JSON summary.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    import torch
    from torch import nn

    from nodectl.workloads import decoder, layout, options, texts
    from nodectl.workloads.settings import Settings, at_least
    from nodectl.workloads.workload import Batch, Data, Workload
else:  # on a node these files lie in one folder, without the package
    import decoder
    import layout
    import options
    import texts
    from pytorch import nn, torch
    from settings import at_least
    from workload import Workload

_ARTICLE = {
    "hidden": 4096,
    "intermediate": 11008,
    "heads": 32,
    "layers": 48,
    "vocabulary": 50257,
    "positions": 2048,
    "seq": 2048,
    "precision": "fp16",
    "optimizer": "adamw",
    "lr": 6e-5,
    "weight_decay": 0.01,
    "epochs": 3,
    "log_every": 10,
    "checkpoint_every": 1000,
}
# the article's second table row has 8 samples over two cards; its third, a pipeline, has 12 in the one copy
_ROWS = {
    "article-4": {"batch": 1, "accumulation": 4},
    "article-4-row-1": {"batch": 4, "accumulation": 8},
    "article-4-row-2": {"batch": 4, "accumulation": 4},
    "article-4-row-3": {"batch": 12, "accumulation": 2, "stages": 3},
    "article-4-row-4": {"batch": 16, "accumulation": 1},
}
_REFUSED_ROW = "article-4-row-4"


class LanguageModel(Workload):
    """The next token by a decoder; the loss is the cross-entropy in nats."""

    name = "llm"
    summary = "Train a decoder to continue a text, byte by byte."
    unit = "tokens"
    presets = {name: {**_ARTICLE, **row} for name, row in _ROWS.items()}  # noqa: RUF012 (nobody changes it)
    defaults = {"batch": 8, "optimizer": "adamw", "epochs": 1}  # noqa: RUF012

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        """Add the options of the model's sizes and of the text."""
        parser.add_argument("--layers", type=at_least(1), default=4, help="decoder layers")
        parser.add_argument("--hidden", type=at_least(2), default=128, help="width of the model")
        parser.add_argument("--intermediate", type=at_least(1), default=344, help="width within the MLP")
        parser.add_argument("--heads", type=at_least(1), default=4, help="attention heads")
        parser.add_argument("--vocabulary", type=at_least(texts.VOCABULARY), default=texts.VOCABULARY, help="tokens")
        parser.add_argument("--positions", type=at_least(1), default=2048, help="longest sequence of the model")
        parser.add_argument("--seq", type=at_least(1), default=128, help="tokens in a sample")
        parser.add_argument("--mlp", choices=decoder.MLPS, default="gated", help="three matrices or two")
        parser.add_argument("--text", type=Path, help="folder of files to train on; none: a made-up text")
        parser.add_argument("--count", action="store_true", help="print how many parameters it has, and end")

    def check(self, settings: Settings) -> None:
        """Sizes that fit each other."""
        options = settings.own
        if settings.preset == _REFUSED_ROW and settings.batch == _ROWS[_REFUSED_ROW]["batch"]:
            raise ValueError(
                f"--preset {_REFUSED_ROW}: a batch of 16 with accumulation 1 cannot be shared among its 3 cards "
                "(train batch = micro-batch x accumulation x ranks, DeepSpeed's rule, and 16 is no multiple of 3): "
                "give --batch for one card"
            )
        if options.seq > options.positions:
            raise ValueError(
                f"--seq {options.seq} is longer than --positions {options.positions}, the longest that it takes"
            )
        self.sizes(settings).check()

    def sizes(self, settings: Settings) -> decoder.Sizes:
        """Return the sizes of the workload's own decoder."""
        options = settings.own
        return decoder.Sizes(
            options.vocabulary,
            options.hidden,
            options.intermediate,
            options.heads,
            options.layers,
            options.positions,
            options.mlp,
        )

    def divisible(self, settings: Settings) -> layout.Divisible:
        """Return what tensor and pipeline parallelism share."""
        options = settings.own
        return layout.Divisible(options.heads, options.intermediate, options.seq, options.layers)

    def identity(self, settings: Settings) -> dict[str, Any]:
        """Return the sizes."""
        return dict(vars(self.sizes(settings)))

    def data(self, settings: Settings) -> Data:
        """Pieces of a text."""
        return texts.read(settings.own.text, settings.own.seq, settings.samples, settings.seed)

    def model(self, settings: Settings) -> nn.Module:
        """Return a decoder with its first values, or without any on the meta device."""
        options = settings.own
        model = decoder.Decoder(self.sizes(settings))
        for name, parameter in model.named_parameters():
            if not parameter.is_meta:
                with torch.no_grad():
                    parameter.copy_(decoder.initial(name, parameter.shape, options.layers, settings.seed))
        return model

    def values(self, settings: Settings, name: str, shape: Sequence[int]) -> torch.Tensor:
        """Return the first values of one parameter."""
        return decoder.initial(name, shape, settings.own.layers, settings.seed)

    def loss(self, answer: torch.Tensor, batch: Batch) -> torch.Tensor:
        """Cross-entropy, mean over all tokens."""
        loss: torch.Tensor = nn.functional.cross_entropy(answer.float().flatten(0, 1), batch[-1].flatten())
        return loss

    def blocks(self, model: nn.Module) -> Sequence[nn.Module]:
        """Return the decoder's layers."""
        return tuple(model.layers.values())

    def units_per_sample(self, settings: Settings) -> int:
        """Tokens."""
        return int(settings.own.seq)

    def flops_per_sample(self, settings: Settings, model: nn.Module) -> float:
        """6N and the attention scores, for each token."""
        options = settings.own
        return float(options.seq * decoder.flops_per_token(self.sizes(settings), options.seq))


def count(settings: Settings) -> str:
    """How large the model is, without making it; one line of JSON."""
    workload = LanguageModel()
    answer = {
        "workload": workload.name,
        "preset": settings.preset,
        "params": workload.sizes(settings).parameters,
        "seq": settings.own.seq,
        "model_flops_per_token": decoder.flops_per_token(workload.sizes(settings), settings.own.seq),
    }
    return json.dumps({**answer, **workload.identity(settings)})


def main() -> None:
    """Train, or only count."""
    workload = LanguageModel()
    settings = options.parse(workload)
    if not settings.own.count:
        options.start(workload)
    elif os.environ.get("RANK", "0") == "0":
        sys.stdout.write(f"{count(settings)}\n")


if __name__ == "__main__":
    main()
