"""How the processes that guard a job know that its supervisor lives and moves: a pipe and a count in shared memory."""

from __future__ import annotations

import contextlib
import mmap
import os
import select
import struct
import time

_SLICE_S = 1.0


class Lifeline:
    """Made before the forks. The supervisor holds `writer`, and counts; the others hold `reader`, and look.

    A process that was stopped itself does not take that time for the supervisor's silence: of each wait, at most one
    slice counts.
    """

    def __init__(self, lease_s: float) -> None:
        self.reader, self.writer = os.pipe()
        self._lease_s = lease_s
        self._slice_s = min(_SLICE_S, lease_s / 4)
        self._memory = mmap.mmap(-1, mmap.PAGESIZE)
        self._seen = 0
        self._silent_s = 0.0

    def beat(self) -> None:
        """Count: the supervisor moves."""
        self._seen += 1
        struct.pack_into("Q", self._memory, 0, self._seen)

    def silent(self) -> bool:
        """Tell whether the supervisor has not moved for the lease, in the time that was waited."""
        return self._silent_s > self._lease_s

    def wait(self, wake: int, *, read: bool) -> int:
        """Wait for at most a slice; the events at `reader` (with `read`: of data too, else of its end only)."""
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
        """Wait for at most a slice; the supervisor is gone, or has been silent for the lease."""
        return bool(self.wait(wake, read=False) & select.POLLHUP) or self.silent()
