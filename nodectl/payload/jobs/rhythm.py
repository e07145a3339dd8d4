"""Tells from a job's output when its steps stop: by the steps that it names, else by how often it writes."""

from __future__ import annotations

import collections
from typing import Deque, Optional

from . import pulse
from .folder import JobFolder

LEAST_S = 20.0
_TIMES = 4.0  # so many times the longest pause so far
_UNKNOWN_S = 60.0  # before a rhythm is known
_LONGEST_S = 300.0  # shorter than the time-outs of torch's watchdogs
_SLOW_TIMES = 1.5  # where a usual pause is longer than that
_KNOWN = 2
_KEPT = 64
_LONGEST_REST_S = 60.0


class Rhythm:
    """The pauses between changes of a mark (a step, or bytes of output); seconds are of the monotonic clock."""

    def __init__(self, now_s: float) -> None:
        self._mark: Optional[int] = None
        self._changed_s = now_s
        self._pauses: Deque[float] = collections.deque(maxlen=_KEPT)
        self._patience = 1.0
        self._suspected = False

    def note(self, mark: Optional[int], now_s: float) -> None:
        """Note the mark at this moment; a change after a suspicion makes the next one take twice as long."""
        if mark == self._mark:
            return
        if self._mark is not None:
            self._pauses.append(now_s - self._changed_s)
        if self._suspected:
            self._patience = min(8.0, 2 * self._patience)
        self._mark, self._changed_s, self._suspected = mark, now_s, False

    def suspicion(self, now_s: float) -> str:
        """Return, once a pause, why it is too long; "" while it is not."""
        paused_s = now_s - self._changed_s
        longest_s, is_known = max(self._pauses, default=0.0), len(self._pauses) >= _KNOWN
        usual_s = max(LEAST_S, _TIMES * longest_s) if is_known else _UNKNOWN_S
        allowed_s = self._patience * min(usual_s, max(_LONGEST_S, _SLOW_TIMES * longest_s))
        if self._suspected or paused_s <= allowed_s:
            return ""
        self._suspected = True
        before = f"; the longest pause before was {longest_s:.0f} s" if is_known else ""
        return f"for {paused_s:.0f} s{before}"

    def stood_s(self, now_s: float) -> float:
        """Return the seconds since the last change."""
        return now_s - self._changed_s


class Monitor:
    """Looks at a running job's output; runs on the clerk's thread."""

    def __init__(self, job: JobFolder, now_s: float) -> None:
        self._job = job
        self._bytes, self._steps = Rhythm(now_s), Rhythm(now_s)
        self._size = -1
        self._step: Optional[int] = None
        self._read_s, self._rest_s = now_s, 0.0

    def stood_s(self, now_s: float) -> float:
        """Return for how long no step, or if none is told no output, has come."""
        return (self._bytes if self._step is None else self._steps).stood_s(now_s)

    def look(self, size: int, now_s: float) -> str:
        """Return why the job may hang, once, or ""; `size` is that of its output in bytes."""
        if size != self._size and now_s >= self._read_s:
            self._size = size
            self._read_step(now_s)
        self._bytes.note(size, now_s)
        if self._step is None:
            silent = self._bytes.suspicion(now_s)
            return f"no output {silent}" if silent else ""
        self._steps.note(self._step, now_s)
        stood = self._steps.suspicion(now_s)
        return f"no step after {self._step} {stood}" if stood else ""

    def _read_step(self, now_s: float) -> None:
        """Read the newest step; output without one is read more and more seldom, since that takes a while."""
        step = pulse.step(self._job)
        self._rest_s = 0.0 if step is not None else min(_LONGEST_REST_S, 2 * self._rest_s + 1.0)
        self._step, self._read_s = self._step if step is None else step, now_s + self._rest_s
