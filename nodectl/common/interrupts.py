"""Ctrl-C and its like: SIGINT, SIGTERM and SIGHUP end a block in one way."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic
from types import FrameType

_ENDS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def interruptible(deaf_s: float = 0.0) -> Iterator[None]:
    """SIGTERM and SIGHUP are KeyboardInterrupt inside the block, as SIGINT is; only the main thread can see to that.

    For `deaf_s` after the first the next ones are not heard: an impatient second Ctrl-C takes nobody's results.
    """
    heard_at: float | None = None

    def interrupt(number: int, frame: FrameType | None) -> None:
        nonlocal heard_at
        if heard_at is not None and monotonic() - heard_at < deaf_s:
            return
        heard_at = monotonic()
        raise KeyboardInterrupt

    with handlers_kept():
        if threading.current_thread() is threading.main_thread():
            for number in _ENDS:
                # a job that a shell or nohup made deaf stays deaf
                if signal.getsignal(number) is not signal.SIG_IGN:
                    signal.signal(number, interrupt)
        yield


@contextmanager
def handlers_kept() -> Iterator[None]:
    """Signal handlers as they were before the block: ansible-runner sets its own and leaves them there."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in _ENDS}
    try:
        yield
    finally:
        for number, handler in before.items():
            if handler is not None:
                signal.signal(number, handler)
