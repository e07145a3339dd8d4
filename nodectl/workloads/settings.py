"""What one training is asked to be: all its options, and which of them make two runs the same training."""

from __future__ import annotations

import argparse
import contextlib
from dataclasses import dataclass, field, fields
from pathlib import Path, PurePath
from typing import Any

# of `compress`: these leave something out, and may send it later
LOSSY = ("powersgd", "topk")

# what changes speed alone, or what is said, or where it is kept
_NOT_THE_COURSE = (
    *("device", "precision", "preset", "workers", "pin_memory", "prefetch", "parallel", "recompute", "own"),
    *("bucket_view", "offload"),
    *("epochs", "steps", "seconds", "log_every", "checkpoint_dir", "checkpoint_every", "resume"),
)
# what rounds otherwise, and else changes nothing that is learned
ROUNDING = ("fused", "compile", "bucket_mb")


class Refused(SystemExit):
    """Options that break a rule: they end the program with this text and status 2, as those that cannot be read do."""


# of a count and of a seed: what torch's generators take, also with a rank's number added
_MOST = 2**32 - 1


class at_least:  # noqa: N801 (a type of argparse)
    """A whole number from `smallest`, which a generator of torch takes as its seed, too."""

    def __init__(self, smallest: int) -> None:
        self.smallest = smallest

    def __call__(self, text: str) -> int:
        """Return the number of a text; ArgumentTypeError if it is none."""
        with contextlib.suppress(ValueError):
            if self.smallest <= int(text) <= _MOST:
                return int(text)
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from {self.smallest} to {_MOST}")


class number:  # noqa: N801 (as above)
    """A finite number from `smallest`."""

    def __init__(self, smallest: float) -> None:
        self.smallest = smallest

    def __call__(self, text: str) -> float:
        """Return the number of a text; ArgumentTypeError if it is none."""
        with contextlib.suppress(ValueError):
            if self.smallest <= float(text) < float("inf"):
                return float(text)
        raise argparse.ArgumentTypeError(f"{text!r} is not a finite number from {self.smallest:g}")


def _option(group: str, default: Any, about: str, kind: Any = None, unless: str = "") -> Any:
    """Return a field that is an option of the command line; `kind` is its type, or its choices.

    `unless` is the help of its opposite, --no-x, where it is on by default.
    """
    return field(default=default, metadata={"group": group, "about": about, "kind": kind, "unless": unless})


COURSE, DYNAMIC, COMPUTED = "course of the training", "a batch that follows the throughput", "how it is computed"
MEETING, SHARES, LOG = "how gradients meet (ddp)", "how ranks share a model", "what is said and kept"


@dataclass(frozen=True)
class Settings:
    """One training: what its command line says. options.py makes the options from these fields.

    `batch` is a micro-batch of one rank, `steps` 0 means that `epochs` decides.
    """

    batch: int = _option(COURSE, 32, "samples of a micro-batch on each rank", at_least(1))
    accumulation: int = _option(COURSE, 1, "micro-batches of a step on each rank", at_least(1))
    epochs: int = _option(COURSE, 10, "passes over the samples", at_least(1))
    samples: int = _option(COURSE, 1024, "samples of synthetic data, over all ranks", at_least(1))
    held_out: int = _option(COURSE, 0, "so many last samples are not trained on: their loss ends an epoch", at_least(0))
    steps: int = _option(COURSE, 0, "end after so many steps in all; 0: by --epochs", at_least(0))
    seconds: float = _option(COURSE, 0.0, "end after steps of so many seconds; 0: by --steps", number(0.0))
    lr: float = _option(COURSE, 1e-3, "learning rate", number(0.0))
    optimizer: str = _option(COURSE, "adam", "what changes the weights", ("adam", "adamw", "sgd"))
    weight_decay: float = _option(COURSE, 0.0, "of the optimizer", number(0.0))
    momentum: float = _option(COURSE, 0.0, "of sgd", number(0.0))
    schedule: str = _option(COURSE, "constant", "of the learning rate; cosine: to 0", ("constant", "cosine"))
    warmup_steps: int = _option(COURSE, 0, "steps in which the learning rate rises", at_least(0))
    clip: float = _option(COURSE, 1.0, "largest norm of the gradients; 0: any", number(0.0))
    seed: int = _option(COURSE, 0, "of weights, data, order and dropout", at_least(0))
    dynamic_batch: bool = _option(DYNAMIC, False, "let the batch of a rank follow the throughput, instead of --batch")
    dynamic_start: int = _option(DYNAMIC, 1024, "samples of a rank at first", int)
    dynamic_min: int = _option(DYNAMIC, 256, "smallest batch of a rank", int)
    dynamic_max: int = _option(DYNAMIC, 8192, "largest batch of a rank", int)
    dynamic_window: int = _option(DYNAMIC, 5, "readings that are averaged", int)
    dynamic_lr: str = _option(DYNAMIC, "linear", "how the learning rate follows the batch", ("linear", "sqrt", "none"))
    precision: str = _option(
        COMPUTED, "auto", "auto: bf16 or fp16 on a GPU, else fp32", ("auto", "fp32", "tf32", "fp16", "bf16")
    )
    device: str = _option(COMPUTED, "auto", "auto: a GPU where there is one", ("auto", "cpu", "cuda"))
    parallel: str = _option(COMPUTED, "auto", "auto: ddp over several ranks, else single")
    fused: bool = _option(COMPUTED, False, "the optimizer is one kernel for all weights")
    offload: str = _option(
        COMPUTED,
        "none",
        "zero, fsdp2: to host memory; parameters: the optimizer, too",
        ("none", "optimizer", "parameters"),
    )
    recompute: str = _option(COMPUTED, "none", "full: layers keep their inputs alone and are computed again")
    compile: bool = _option(COMPUTED, False, "compile the layers (torch.compile)")
    workers: int = _option(COMPUTED, 0, "processes a rank that prepare batches", at_least(0))
    pin_memory: bool = _option(COMPUTED, False, "batches go to a GPU from page-locked memory")
    prefetch: int = _option(COMPUTED, 2, "batches that each of the workers prepares ahead", at_least(1))
    compress: str = _option(MEETING, "none", "of gradients before they are sent", ("none", "fp16", "bf16", *LOSSY))
    compress_ratio: float = _option(MEETING, 0.01, "topk: share of the values sent", float)
    compress_rank: int = _option(MEETING, 4, "powersgd: columns kept of a matrix", int)
    error_feedback: bool = _option(
        MEETING,
        True,
        "",
        unless="drop what compression leaves out, instead of adding it to the next step's gradients",
    )
    bucket_mb: float | None = _option(
        MEETING,
        None,
        "gradients are sent in parts of so many MiB; none: as DDP has it, 1, then 25",
        number(0.001),
    )
    bucket_view: bool = _option(MEETING, False, "gradients lie in the parts that are sent: one copy less")
    tensor: int = _option(SHARES, 1, "ranks that share each matrix (tensor parallelism)", at_least(1))
    stages: int = _option(SHARES, 1, "ranks that share the layers (pipeline parallelism)", at_least(1))
    log_every: int = _option(LOG, 10, "steps between two lines", at_least(1))
    checkpoint_dir: Path | None = _option(  # noqa: RUF009 - it is a dataclass field
        LOG, None, "none: save nothing", Path
    )
    checkpoint_every: int = _option(LOG, 50, "steps between two checkpoints", at_least(1))
    resume: bool = _option(
        LOG,
        True,
        "go on from the newest checkpoint",
        unless="begin anew; older checkpoints are set aside",
    )
    preset: str | None = None
    # the workload's
    own: argparse.Namespace = field(default_factory=argparse.Namespace)

    def course(self, total_steps: int) -> dict[str, Any]:
        """Return what must be equal for a resumed run to repeat an uninterrupted one; plain values."""
        same = {field.name: getattr(self, field.name) for field in fields(self) if field.name not in _NOT_THE_COURSE}
        if self.schedule != "constant":
            same["total_steps"] = total_steps
        workload_options = {
            name: str(value) if isinstance(value, PurePath) else value for name, value in vars(self.own).items()
        }
        return {**same, **workload_options}
