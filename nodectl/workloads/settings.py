"""The options of the transformer workload, and which of them make two runs the same training."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

PRECISIONS = ("auto", "fp32", "tf32", "fp16", "bf16")


@dataclass(frozen=True)
class Settings:
    """One training; `batch` is per rank, `steps` 0 means that `epochs` decides."""

    layers: int
    d_model: int
    heads: int
    batch: int
    seq: int
    epochs: int
    samples: int
    steps: int
    lr: float
    clip: float
    dropout: float
    precision: str
    seed: int
    device: str
    log_every: int
    checkpoint_dir: Path | None
    checkpoint_every: int
    resume: bool

    @property
    def model(self) -> dict[str, float]:
        """What a checkpoint must have been made with to fit at all."""
        return {"layers": self.layers, "d_model": self.d_model, "heads": self.heads}

    @property
    def course(self) -> dict[str, float]:
        """What must also be equal for a resumed run to repeat an uninterrupted one."""
        same = ("batch", "seq", "samples", "lr", "clip", "dropout", "seed")
        return {name: getattr(self, name) for name in same}


def parse(arguments: Sequence[str] | None = None) -> Settings:
    """Settings from the command line; argparse ends the program (2) on a wrong one."""
    parser = _parser()
    settings = Settings(**vars(parser.parse_args(arguments)))
    if settings.d_model % settings.heads:
        parser.error(f"--d-model {settings.d_model} cannot be shared among --heads {settings.heads}")
    return settings


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="transformer",
        description="Train a small transformer encoder on synthetic data.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    whole = _at_least(1)
    parser.add_argument("--layers", type=whole, default=6, help="encoder layers")
    parser.add_argument("--d-model", type=whole, default=512, help="width of the model")
    parser.add_argument("--heads", type=whole, default=8, help="attention heads")
    parser.add_argument("--batch", type=whole, default=32, help="samples a step on each rank")
    parser.add_argument("--seq", type=whole, default=128, help="vectors in a sample")
    parser.add_argument("--epochs", type=whole, default=10, help="passes over the samples")
    parser.add_argument("--samples", type=whole, default=1024, help="samples an epoch, over all ranks")
    parser.add_argument("--steps", type=_at_least(0), default=0, help="end after so many steps in all; 0: by --epochs")
    parser.add_argument("--lr", type=float, default=1e-3, help="Adam's learning rate")
    parser.add_argument("--clip", type=float, default=1.0, help="largest norm of the gradients")
    parser.add_argument("--dropout", type=float, default=0.1, help="share of activations dropped")
    parser.add_argument(
        "--precision", choices=PRECISIONS, default="auto", help="auto: bf16 or fp16 on a GPU, else fp32"
    )
    parser.add_argument("--seed", type=int, default=0, help="of weights, data, order and dropout")
    parser.add_argument(
        "--device", choices=("auto", "cpu", "cuda"), default="auto", help="auto: a GPU where there is one"
    )
    parser.add_argument("--log-every", type=whole, default=10, help="steps between two lines")
    folder = os.environ.get("NODECTL_CHECKPOINT_DIR") or None
    parser.add_argument("--checkpoint-dir", type=Path, default=folder, help="none: save nothing")
    parser.add_argument("--checkpoint-every", type=whole, default=50, help="steps between two checkpoints")
    parser.add_argument(
        "--resume", dest="resume", action="store_true", default=True, help="go on from the newest checkpoint"
    )
    parser.add_argument(
        "--no-resume", dest="resume", action="store_false", help="begin anew; older checkpoints are set aside"
    )
    return parser


class _at_least:  # noqa: N801 (argparse names the type in its message)
    def __init__(self, smallest: int) -> None:
        self.smallest = smallest
        self.__name__ = f"whole number from {smallest}"

    def __call__(self, text: str) -> int:
        value = int(text)
        if value < self.smallest:
            raise ValueError
        return value
