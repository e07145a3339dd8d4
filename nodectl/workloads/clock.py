"""How long steps take: to their real end, without the first ones."""

from __future__ import annotations

import statistics
import time
from typing import Any

import torch

WARMUP_STEPS = 10


class Clock:
    """Durations of the steps of this run, how many samples all ranks had in each, and how long it waited for them."""

    def __init__(self, device: torch.device, steps: int) -> None:
        self.device = device
        self.warmup = min(WARMUP_STEPS, steps // 2)  # a short run keeps half of its steps
        self.durations_s: list[float] = []
        self.waits_s: list[float] = []
        self.samples: list[int] = []
        self._began_s = 0.0

    @property
    def is_warm(self) -> bool:
        """The next step counts."""
        return len(self.durations_s) >= self.warmup

    def start(self) -> None:
        """Take the time at which a step begins: before its samples are asked for."""
        self._began_s = time.perf_counter()

    def stop(self, samples: int, wait_s: float) -> None:
        """Note the end of a step; a GPU is waited for, else only its queue would be timed."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        self.durations_s.append(time.perf_counter() - self._began_s)
        self.waits_s.append(wait_s)
        self.samples.append(samples)

    def median_step_ms(self, last: int = 0) -> float | None:
        """Median over this run, or its `last` steps, without warm-up; None where only warm-up was run."""
        timed = self.durations_s[self._from(last) :]
        return round(statistics.median(timed) * 1e3, 3) if timed else None

    def samples_per_s(self, last: int = 0) -> float | None:
        """Return the samples of all ranks over the time of the same steps; None without any."""
        begin = self._from(last)
        total_s = sum(self.durations_s[begin:])
        return round(sum(self.samples[begin:]) / total_s, 1) if total_s else None

    def figures(self) -> dict[str, Any]:
        """Return figures of the steps after the warm-up, null without; `step_spread`: (p95 - p5) over the median."""
        timed = sorted(self.durations_s[self.warmup :])
        waited_s = sum(self.waits_s[self.warmup :])
        middle, low, high = (_quantile(timed, part) for part in (0.5, 0.05, 0.95))
        return {
            "median_step_ms": self.median_step_ms(),
            "p95_step_ms": round(high * 1e3, 3) if timed else None,
            "step_spread": round((high - low) / middle, 4) if timed else None,
            "timed_steps": len(timed),
            "timed_s": round(sum(timed), 3),
            "warmup_steps": self.warmup,
            "samples_per_s": self.samples_per_s(),
            "data_wait_share": round(waited_s / sum(timed), 4) if timed else None,
        }

    def _from(self, last: int) -> int:
        return max(self.warmup, len(self.durations_s) - last if last else 0)


def _quantile(ordered: list[float], part: float) -> float:
    """Return the quantile by the nearest rank; 0 of nothing."""
    return ordered[round(part * (len(ordered) - 1))] if ordered else 0.0
