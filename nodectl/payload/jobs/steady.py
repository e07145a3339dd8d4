"""A time of day that never jumps, to order events on one host."""

from __future__ import annotations

import time

_EPOCH_S = time.time() - time.monotonic()  # a fork keeps it, so supervisor and guard tell one time


def now() -> float:
    """Return the seconds since 1970: the wall clock at this program's start plus the monotonic time since."""
    return _EPOCH_S + time.monotonic()


def of_monotonic(seconds: float) -> float:
    """Return that time for a moment of the monotonic clock."""
    return _EPOCH_S + seconds
