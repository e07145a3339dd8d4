"""A batch that follows the throughput: doubled where it rises, halved where it falls, the learning rate with it.

The rule of the article on the 20 Gb/s network: the mean of the last five readings against the one before them.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nodectl.workloads.settings import Settings

# the share by which the throughput must have changed
UP, DOWN = 0.1, 0.1


def check(settings: Settings) -> None:
    """Raise ValueError if the numbers of a dynamic batch contradict each other."""
    if not settings.dynamic_batch:
        return
    if not 1 <= settings.dynamic_min <= settings.dynamic_start <= settings.dynamic_max:
        raise ValueError(
            f"--dynamic-start {settings.dynamic_start} is not between --dynamic-min {settings.dynamic_min} "
            f"and --dynamic-max {settings.dynamic_max}"
        )
    if settings.dynamic_window < 1:
        raise ValueError(f"--dynamic-window {settings.dynamic_window}: at least 1")


class DynamicBatch:
    """The batch now, of one rank, and the readings that the next decision rests on."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.batch = settings.dynamic_start
        self.readings: list[float] = []

    @property
    def lr_factor(self) -> float:
        """Return what the learning rate is multiplied with now."""
        grown = self.batch / self.settings.dynamic_start
        return {"linear": grown, "sqrt": math.sqrt(grown), "none": 1.0}[self.settings.dynamic_lr]

    def update(self, samples_per_s: float) -> str:
        """Take a reading, the same on every rank, and decide; what was changed and why, empty if nothing was."""
        window = self.settings.dynamic_window
        self.readings = [*self.readings, samples_per_s][-window - 1 :]
        if len(self.readings) <= window:
            return ""
        before, *last = self.readings
        mean = sum(last) / len(last)
        old = self.batch
        if mean > before * (1 + UP):
            self.batch = min(2 * old, self.settings.dynamic_max)
        elif mean < before * (1 - DOWN):
            self.batch = max(old // 2, self.settings.dynamic_min)
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
