"""Knows how long steps take: each one to its real end on the device, the first ones left out."""

from __future__ import annotations

import statistics
import time

import torch

WARMUP_STEPS = 10


class Clock:
    """Durations of the steps of this run, and how many samples all ranks had in each."""

    def __init__(self, device: torch.device, steps: int) -> None:
        self.device = device
        self.warmup = min(WARMUP_STEPS, steps // 2)  # a short run keeps half of its steps
        self.durations_s: list[float] = []
        self.samples: list[int] = []
        self._began_s = 0.0

    def start(self) -> None:
        """A step begins."""
        self._began_s = time.perf_counter()

    def stop(self, samples: int) -> None:
        """It ended; a GPU is waited for, else only its queue would be timed."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        self.durations_s.append(time.perf_counter() - self._began_s)
        self.samples.append(samples)

    def median_step_ms(self, last: int = 0) -> float | None:
        """Median over this run, or its `last` steps, without warm-up; None where only warm-up was run."""
        timed = self.durations_s[self._from(last) :]
        return round(statistics.median(timed) * 1e3, 3) if timed else None

    def samples_per_s(self, last: int = 0) -> float | None:
        """Samples of all ranks over the time of the same steps."""
        begin = self._from(last)
        total_s = sum(self.durations_s[begin:])
        return round(sum(self.samples[begin:]) / total_s, 1) if total_s else None

    def _from(self, last: int) -> int:
        return max(self.warmup, len(self.durations_s) - last if last else 0)
