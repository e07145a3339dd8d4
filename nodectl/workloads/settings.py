"""What one training is asked to be, and which of it makes two runs the same training."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import argparse
    from pathlib import Path

# what changes speed alone, or what is said, or where it is kept
_NOT_THE_COURSE = (
    *("device", "precision", "preset", "workers", "pin_memory", "prefetch", "parallel", "recompute", "own", "given"),
    *("bucket_view", "static_graph", "offload", "deepspeed"),
    *("epochs", "steps", "log_every", "checkpoint_dir", "checkpoint_every", "resume"),
)
# what rounds otherwise, and else changes nothing that is learned
ROUNDING = ("fused", "compile", "bucket_mb")
# what a search for speed may vary: how the same samples are learned from, not what is learned
TUNABLE = (
    *("batch", "accumulation", "precision", "fused", "parallel", "offload", "recompute", "compile"),
    *("workers", "pin_memory", "prefetch", "bucket_mb", "bucket_view", "static_graph"),
    *("compress", "compress_ratio", "compress_threshold", "compress_rank", "error_feedback"),
)


class Refused(SystemExit):
    """Options that break a rule: they end the program with this text and status 2, as those that cannot be read do."""


@dataclass(frozen=True)
class Settings:
    """One training; `batch` is a micro-batch of one rank, `steps` 0 means that `epochs` decides.

    `course_batch` is the batch of a rank and step for which steps, warm-up and learning rate are meant, where it is
    not this one's; 0 where it is.
    """

    preset: str | None
    batch: int
    accumulation: int
    course_batch: int
    epochs: int
    samples: int
    held_out: int
    steps: int
    lr: float
    optimizer: str
    weight_decay: float
    momentum: float
    schedule: str
    warmup_steps: int
    clip: float
    precision: str
    seed: int
    device: str
    parallel: str
    fused: bool
    offload: str
    deepspeed: Path | None
    tensor: int
    stages: int
    pipeline: str
    recompute: str
    compile: bool
    workers: int
    pin_memory: bool
    prefetch: int
    compress: str
    compress_ratio: float
    compress_threshold: float
    compress_rank: int
    error_feedback: bool
    bucket_mb: float | None
    bucket_view: bool
    static_graph: bool
    dynamic_batch: bool
    dynamic_start: int
    dynamic_min: int
    dynamic_max: int
    dynamic_window: int
    dynamic_lr: str
    log_every: int
    checkpoint_dir: Path | None
    checkpoint_every: int
    resume: bool
    # the workload's
    own: argparse.Namespace
    # the names of those that stand on the command line
    given: frozenset[str] = frozenset()

    def on_course(self) -> Settings:
        """Return settings with the steps, warm-up and rate by which this batch sees what `course_batch` would see.

        The rate goes with the batch for sgd, and with its root for adam and adamw.
        """
        grown = self.batch * self.accumulation / (self.course_batch or self.batch * self.accumulation)
        return replace(
            self,
            course_batch=0,
            steps=math.ceil(self.steps / grown),
            warmup_steps=round(self.warmup_steps / grown),
            lr=self.lr * (grown if self.optimizer == "sgd" else math.sqrt(grown)),
        )

    @property
    def asked(self) -> dict[str, Any]:
        """Return what stands on the command line, by its destination, the workload's own among it."""
        return {name: value for name, value in self.values.items() if name in self.given}

    @property
    def values(self) -> dict[str, Any]:
        """All options by their destinations."""
        return {**{each.name: getattr(self, each.name) for each in fields(self)}, **vars(self.own)}

    def course(self, total_steps: int) -> dict[str, Any]:
        """Return what must be equal for a resumed run to repeat an uninterrupted one; plain values."""
        same = {each.name: getattr(self, each.name) for each in fields(self) if each.name not in _NOT_THE_COURSE}
        if self.schedule != "constant":
            same["total_steps"] = total_steps
        own = {name: str(value) if isinstance(value, PurePath) else value for name, value in vars(self.own).items()}
        return {**same, **own}
