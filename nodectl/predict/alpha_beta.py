"""A transfer's time as a start-up time and a time for each byte, t = alpha + beta * size, fitted to measurements."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from nodectl.common.statistics import robust_deviation, student_t
from nodectl.errors import UsageError

_PASSES = 30
# Huber's: beyond so many deviations a value counts less
_HUBER = 1.345
_CONFIDENCE = 0.95
_LEAST_SIZES = 3
_ENOUGH = 1e-9


@dataclass(frozen=True, slots=True)
class Interval:
    """Hold where a value lies with 95 % confidence."""

    low: float
    high: float


@dataclass(frozen=True, slots=True)
class AlphaBeta:
    """The fitted line; `error` is by what part the measurements usually miss it, `worst` the largest part."""

    alpha_s: float
    beta_s_per_byte: float
    alpha_interval: Interval
    beta_interval: Interval
    error: float
    worst: float
    count: int

    @property
    def bandwidth_gb_s(self) -> float:
        """Return what large transfers come to, in GB/s of 1e9 bytes."""
        return 1 / self.beta_s_per_byte / 1e9

    @property
    def half_size_bytes(self) -> float:
        """The size that reaches half of the bandwidth: below it the start-up time counts, above it the link."""
        return self.alpha_s / self.beta_s_per_byte

    def time_s(self, size_bytes: float) -> float:
        """How long a transfer of this size should take."""
        return self.alpha_s + self.beta_s_per_byte * size_bytes


def fit_alpha_beta(samples: Sequence[tuple[float, float]]) -> AlphaBeta:
    """The line through (size in bytes, seconds), by relative error, so that small sizes count as much as large ones.

    Robust: single stalled repetitions hardly move it. UsageError where the sizes are too few to tell the two apart.
    """
    if any(size < 0 or seconds <= 0 or not math.isfinite(size + seconds) for size, seconds in samples):
        raise UsageError("a transfer has no time or a negative size", "leave runs out that measured nothing")
    if len({size for size, _ in samples}) < _LEAST_SIZES:
        raise UsageError("a fit of start-up time and bandwidth needs 3 sizes", "measure sizes from 1 KiB to 64 MiB")
    weights = [1.0] * len(samples)
    alpha = beta = 0.0
    for _ in range(_PASSES):
        before = (alpha, beta)
        alpha, beta = _line(samples, weights)
        if beta <= 0:
            raise UsageError(
                "large transfers take no longer than small ones", "measure larger sizes: these show the start-up only"
            )
        misses = [(alpha + beta * size - seconds) / seconds for size, seconds in samples]
        deviation = robust_deviation(misses)
        weights = [min(1.0, _HUBER * deviation / abs(miss)) if miss else 1.0 for miss in misses]
        if abs(alpha - before[0]) <= _ENOUGH * abs(alpha) and abs(beta - before[1]) <= _ENOUGH * abs(beta):
            break
    return _described(samples, weights, alpha, beta)


def _line(samples: Sequence[tuple[float, float]], weights: Sequence[float]) -> tuple[float, float]:
    """Least squares of the relative misses; a start-up time is never negative."""
    s1, sx, sxx, sy, sxy = _sums(samples, weights)
    spread = s1 * sxx - sx * sx
    alpha, beta = (sxx * sy - sx * sxy) / spread, (s1 * sxy - sx * sy) / spread
    return (alpha, beta) if alpha >= 0 else (0.0, sxy / sxx)


def _sums(samples: Sequence[tuple[float, float]], weights: Sequence[float]) -> tuple[float, float, float, float, float]:
    own = [(weight / seconds**2, size, seconds) for weight, (size, seconds) in zip(weights, samples, strict=True)]
    return (
        math.fsum(w for w, _, _ in own),
        math.fsum(w * x for w, x, _ in own),
        math.fsum(w * x * x for w, x, _ in own),
        math.fsum(w * y for w, _, y in own),
        math.fsum(w * x * y for w, x, y in own),
    )


def _described(
    samples: Sequence[tuple[float, float]], weights: Sequence[float], alpha: float, beta: float
) -> AlphaBeta:
    s1, sx, sxx, _, _ = _sums(samples, weights)
    misses = [(alpha + beta * size - seconds) / seconds for size, seconds in samples]
    degrees = len(samples) - 2
    square = math.fsum(weight * miss**2 for weight, miss in zip(weights, misses, strict=True)) / degrees
    spread, t = s1 * sxx - sx * sx, student_t((1 + _CONFIDENCE) / 2, degrees)
    off_alpha, off_beta = t * math.sqrt(square * sxx / spread), t * math.sqrt(square * s1 / spread)
    return AlphaBeta(
        alpha,
        beta,
        Interval(max(0.0, alpha - off_alpha), alpha + off_alpha),
        Interval(max(0.0, beta - off_beta), beta + off_beta),
        robust_deviation(misses),
        max(abs(miss) for miss in misses),
        len(samples),
    )
