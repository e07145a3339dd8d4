"""Series for tests: from gains in percent of a steady baseline, or from two lists."""

import json
from collections.abc import Sequence
from pathlib import Path

from nodectl.common.documents import values_of
from nodectl.model.trial import Pair, Series

# a baseline that scatters by about 1 %
STEADY = (10.0, 10.1, 9.9, 10.05, 9.95, 10.0, 10.08, 9.92, 10.03, 9.97)


def trial(
    baseline: Sequence[float | None],
    candidate: Sequence[float | None],
    unit: str = "GB/s",
    *,
    size_bytes: int | None = None,
    profile: str = "candidate",
    subject: str = "",
) -> Series:
    """The two lists side by side."""
    pairs = tuple(Pair(a, b, number % 2 == 1) for number, (a, b) in enumerate(zip(baseline, candidate, strict=True)))
    return Series(profile, "stock", "nccl", unit, pairs, subject, size_bytes)


def gaining(
    percent: float,
    unit: str = "GB/s",
    *,
    pairs: int = 10,
    size_bytes: int | None = None,
    profile: str = "candidate",
    subject: str = "",
) -> Series:
    """A candidate whose every value is that much more than the one beside it, but for a scatter of its own."""
    baseline = [STEADY[number % len(STEADY)] for number in range(pairs)]
    candidate = [each * (1 + percent / 100) * (1 + 0.002 * (-1) ** number) for number, each in enumerate(baseline)]
    return trial(baseline, candidate, unit, size_bytes=size_bytes, profile=profile, subject=subject)


def series_in(path: Path) -> tuple[Series, ...]:
    """The series of a recorded file."""
    return values_of(Series, json.loads(path.read_text())["series"])
