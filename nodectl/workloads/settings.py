"""What one training is asked to be, and which of it makes two runs the same training."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import argparse
    from pathlib import Path

# what changes speed alone, or what is said, or where it is kept
_NOT_THE_COURSE = (
    *("device", "precision", "preset", "workers", "pin_memory", "prefetch", "parallel", "recompute", "own"),
    *("bucket_view", "static_graph", "offload", "deepspeed"),
    *("epochs", "steps", "log_every", "checkpoint_dir", "checkpoint_every", "resume"),
)


@dataclass(frozen=True)
class Settings:
    """One training; `batch` is a micro-batch of one rank, `steps` 0 means that `epochs` decides."""

    preset: str | None
    batch: int
    accumulation: int
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

    def course(self, total_steps: int) -> dict[str, Any]:
        """What must be equal for a resumed run to repeat an uninterrupted one; plain values."""
        same = {each.name: getattr(self, each.name) for each in fields(self) if each.name not in _NOT_THE_COURSE}
        if self.schedule != "constant":
            same["total_steps"] = total_steps
        own = {name: str(value) if isinstance(value, PurePath) else value for name, value in vars(self.own).items()}
        return {**same, **own}
