"""A time of day that never jumps, to order events on one host and between hosts."""

from __future__ import annotations

import time
from typing import Dict, List

_EPOCH_S = time.time() - time.monotonic()  # a fork keeps it, so supervisor and guard tell one time
_WINDOW_S = 60.0
_MOST_PEERS = 128


def now() -> float:
    """Return the seconds since 1970: the wall clock at this program's start plus the monotonic time since."""
    return _EPOCH_S + time.monotonic()


def of_monotonic(seconds: float) -> float:
    """Return that time for a moment of the monotonic clock."""
    return _EPOCH_S + seconds


class OneWay:
    """Keeps, by host, the least apparent travel time of its messages: the real time plus the difference of the clocks.

    From two hosts' figures about each other follow the difference of their clocks and its uncertainty. Only the last
    minute or two count, because clocks drift.
    """

    def __init__(self) -> None:
        self._least: Dict[int, List[float]] = {}
        self._turned_s = 0.0

    def note(self, rank: int, sent: float, arrived: float) -> None:
        """Note a message of `rank`, by its sender's time and this host's."""
        if arrived - self._turned_s > _WINDOW_S:
            self._turned_s = arrived
            for values in self._least.values():
                values[:] = [values[1], float("inf")]
        values = self._least.setdefault(rank, [float("inf"), float("inf")])
        values[1] = min(values[1], arrived - sent)

    def record(self) -> Dict[str, float]:
        """Return, for the state file, the seconds by a host's rank; of a large fleet only the first hosts."""
        least = {rank: min(values) for rank, values in sorted(self._least.items())[:_MOST_PEERS]}
        return {str(rank): round(value, 6) for rank, value in least.items() if value != float("inf")}
