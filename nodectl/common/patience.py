"""A bound on the time that is spent on what one host printed."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

# a host's honest 32 MiB are read and judged in less
_PATIENCE_S = 20.0
# once it is lost, each further part gets so much
_LEFT_S = 2.0


class ImpatienceError(RuntimeError):
    """It took too long."""


@contextmanager
def patience(seconds: float = _PATIENCE_S, left: float = _LEFT_S) -> Iterator[None]:
    """Raise ImpatienceError in the body after so many seconds of computing, and again each time `left` has passed.

    Only where signals come: in a process's first thread.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGVTALRM, _lose)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds, left)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def _lose(*_: object) -> None:
    raise ImpatienceError("it took too long to read")
