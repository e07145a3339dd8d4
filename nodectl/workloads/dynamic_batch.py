"""A batch that follows the throughput: doubled where it rises, halved where it falls, the learning rate with it.

The rule of the article on the 20 Gb/s network: the mean of the last five readings against the one before them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Rule:
    """Bounds and start of the batch, of one rank; `up` and `down`: by which share the throughput must have changed."""

    start: int = 1024
    smallest: int = 256
    largest: int = 8192
    window: int = 5
    up: float = 0.1
    down: float = 0.1
    scaling: str = "linear"

    def check(self) -> None:
        """Raise ValueError if the numbers contradict each other."""
        if not 1 <= self.smallest <= self.start <= self.largest:
            raise ValueError(
                f"--dynamic-start {self.start} is not between --dynamic-min {self.smallest} "
                f"and --dynamic-max {self.largest}"
            )
        if self.window < 1:
            raise ValueError(f"--dynamic-window {self.window}: at least 1")

    def lr_factor(self, batch: int) -> float:
        """Return what the learning rate is multiplied with at this batch."""
        grown = batch / self.start
        return {"linear": grown, "sqrt": math.sqrt(grown), "none": 1.0}[self.scaling]


def of(settings: Any) -> Rule | None:
    """Return the settings' rule; None if the batch is fixed. ValueError if the numbers contradict."""
    if not settings.dynamic_batch:
        return None
    rule = Rule(
        settings.dynamic_start,
        settings.dynamic_min,
        settings.dynamic_max,
        settings.dynamic_window,
        scaling=settings.dynamic_lr,
    )
    rule.check()
    return rule


@dataclass
class DynamicBatch:
    """The batch now, and the readings that the next decision rests on."""

    rule: Rule
    batch: int = 0
    readings: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.batch = self.batch or self.rule.start

    @property
    def lr_factor(self) -> float:
        """Return what the learning rate is multiplied with now."""
        return self.rule.lr_factor(self.batch)

    def update(self, samples_per_s: float) -> str:
        """Take a reading, the same on every rank, and decide; what was changed and why, empty if nothing was."""
        self.readings = [*self.readings, samples_per_s][-self.rule.window - 1 :]
        if len(self.readings) <= self.rule.window:
            return ""
        before, *last = self.readings
        mean = sum(last) / len(last)
        old = self.batch
        if mean > before * (1 + self.rule.up):
            self.batch = min(2 * old, self.rule.largest)
        elif mean < before * (1 - self.rule.down):
            self.batch = max(old // 2, self.rule.smallest)
        if self.batch == old:
            return ""
        return (
            f"batch {old} -> {self.batch} a rank: {mean:.1f} samples/s on average of the last {len(last)}, "
            f"{before:.1f} before ({100 * (mean / before - 1):+.1f} %); learning rate x {self.lr_factor:g}"
        )

    def state(self) -> dict[str, Any]:
        """All that the next decision depends on."""
        return {"batch": self.batch, "readings": list(self.readings)}

    def load(self, state: dict[str, Any]) -> None:
        """Go on from `state`."""
        self.batch, self.readings = int(state["batch"]), [float(reading) for reading in state["readings"]]
