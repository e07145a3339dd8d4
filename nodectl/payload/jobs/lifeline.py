"""A pipe and a counter in shared memory by which a job's guards see that its supervisor lives and is not frozen."""

from __future__ import annotations

import contextlib
import mmap
import os
import select
import struct
import time

_SLICE_S = 1.0


class Lifeline:
    """The pipe and the counter, made before the forks: the supervisor holds `writer`, its guards hold `reader`.

    A guard that was stopped itself must not take that time for the supervisor's silence, so each wait counts as one
    slice at most.
    """

    def __init__(self, lease_s: float) -> None:
        self.reader, self.writer = os.pipe()
        self._lease_s = lease_s
        self._slice_s = min(_SLICE_S, lease_s / 4)
        self._memory = mmap.mmap(-1, mmap.PAGESIZE)
        self._seen = 0
        self._silent_s = 0.0

    def beat(self) -> None:
        """Increase the counter, as a sign that the supervisor is not frozen."""
        self._seen += 1
        struct.pack_into("Q", self._memory, 0, self._seen)

    def silent(self) -> bool:
        """Tell whether the supervisor has not counted for as long as the lease, in the time waited so far."""
        return self._silent_s > self._lease_s

    def wait(self, wake: int, *, read: bool) -> int:
        """Wait for at most a slice; return the events at `reader`: its end, and with `read` also data."""
        poller = select.poll()
        poller.register(self.reader, select.POLLIN if read else 0)
        poller.register(wake, select.POLLIN)
        started_s = time.monotonic()
        events = dict(poller.poll(self._slice_s * 1000))
        waited_s = min(time.monotonic() - started_s, self._slice_s)
        if wake in events:
            with contextlib.suppress(BlockingIOError):
                os.read(wake, 4096)
        (count,) = struct.unpack_from("Q", self._memory, 0)
        self._silent_s = 0.0 if count != self._seen else self._silent_s + waited_s
        self._seen = count
        return events.get(self.reader, 0)

    def lost(self, wake: int) -> bool:
        """Wait for at most a slice; return whether the supervisor is gone or has been silent for the lease."""
        return bool(self.wait(wake, read=False) & select.POLLHUP) or self.silent()
