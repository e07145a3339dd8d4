"""How long a sweep of collectives takes: what was measured of some says it of the others."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean, median

from nodectl.probes.budget import left_s
from nodectl.probes.events import Event
from nodectl.probes.pace import Pace

Case = tuple[str, int]
# operations of a case beside those that are timed: warmed up, tried once, checked
_BESIDE = 3
# filling and checking the buffers, until enough was measured to tell
_USUAL_FACTOR, _ENOUGH_S = 1.2, 2.0
# smaller sizes take what it takes to start, and say nothing of larger ones
_TELLING = 256 << 10


class Forecast:
    """Told the events of a group's ranks as they arrive; `pace` says what is news.

    What would end after `ends_at` (of the monotonic clock) is not measured, and takes no longer.
    """

    def __init__(
        self, cases: Sequence[Case], repetitions: int, duration_s: float, pace: Pace, ends_at: float | None = None
    ) -> None:
        self._left = dict.fromkeys(cases)
        self._repetitions, self._duration_s, self._pace = repetitions, duration_s, pace
        self._ends_at = ends_at
        # seconds of one operation
        self._known: dict[Case, float] = {}
        self._began_s = 0.0

    def add(self, event: Event) -> None:
        """Events of rank 0 count: the others say the same."""
        kind = event["event"]
        if kind == "ready" and event.get("rank") == 0:
            self._began_s = self._pace.took_s()
        elif kind == "left":
            self._left.pop((str(event.get("collective")), int(event.get("asked_bytes", 0))), None)
        elif kind in ("cut", "unsupported"):
            self._left = {case: None for case in self._left if case[0] != event.get("collective")}
        elif kind == "times" and event.get("rank") == 0 and event["seconds"]:
            case = str(event["collective"]), int(event["asked_bytes"])
            self._known[case] = median(event["seconds"])
            self._left.pop(case, None)
            self._say()

    def _say(self) -> None:
        if not self._left or not self._can_tell():
            return
        took_s = self._pace.took_s()
        measured_s = sum(map(self._cost_s, self._known.values()))
        enough = measured_s > _ENOUGH_S
        factor = (took_s - self._began_s) / measured_s if enough else _USUAL_FACTOR
        more_s = factor * sum(self._cost_s(self._operation_s(case)) for case in self._left)
        room_s = left_s(self._ends_at)
        self._pace.expect(took_s, more_s if room_s is None else max(0.0, min(more_s, room_s)))

    def _can_tell(self) -> bool:
        """The first collective tells of the others; of one alone, its sizes tell of larger ones."""
        largest = max(size for _, size in self._known)
        others = len({name for name, _ in (*self._left, *self._known)}) > 1
        return largest >= max(size for _, size in self._left) or (largest >= _TELLING and not others)

    def _cost_s(self, operation_s: float) -> float:
        timed = self._repetitions * max(self._duration_s, operation_s)
        return timed + _BESIDE * operation_s

    def _operation_s(self, case: Case) -> float:
        """As long as the other collectives took at this size; else by the size nearest to it, of its own if it can."""
        collective, size = case
        same_size = [took for (_, other), took in self._known.items() if other == size]
        if same_size:
            return fmean(same_size)
        own = {other: took for (name, other), took in self._known.items() if name == collective}
        times = own or {other: took for (_, other), took in self._known.items()}
        *smaller, largest = sorted(times)
        nearest = min(times, key=lambda other: abs(other - size))
        if size < largest:
            return times[nearest]
        # what it takes to start shows in the difference of two sizes
        grown = (times[largest] - times[smaller[-1]]) / (largest - smaller[-1]) if smaller else times[largest] / largest
        return times[largest] + max(0.0, grown) * (size - largest)
