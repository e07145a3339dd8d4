"""Ctrl-C and its like: SIGINT, SIGTERM and SIGHUP end a block in one way."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from time import monotonic
from types import FrameType

Handler = Callable[[int, FrameType | None], object] | int | None

_ENDS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def interruptible(deaf_s: float = 0.0) -> Iterator[None]:
    """SIGTERM and SIGHUP are KeyboardInterrupt inside the block, as SIGINT is; only the main thread can see to that.

    For `deaf_s` after the first the next ones are not heard, also behind the block: an impatient second Ctrl-C takes
    nobody's results.
    """
    heard_at: float | None = None

    def interrupt(number: int, frame: FrameType | None) -> None:
        nonlocal heard_at
        if heard_at is not None and monotonic() - heard_at < deaf_s:
            return
        heard_at = monotonic()
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = _handlers()
    for number, handler in before.items():
        # a job that a shell or nohup made deaf stays deaf
        if handler is not signal.SIG_IGN:
            signal.signal(number, interrupt)
    try:
        yield
    finally:
        if heard_at is None or not deaf_s:
            _restore(before)


def deaf_from_now_on() -> None:
    """For a process that has said all and ends: a late signal changes its exit status no more."""
    if threading.current_thread() is threading.main_thread():
        for number in _ENDS:
            signal.signal(number, signal.SIG_IGN)


@contextmanager
def handlers_kept() -> Iterator[None]:
    """Signal handlers as they were before the block: ansible-runner sets its own and leaves them there."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = _handlers()
    try:
        yield
    finally:
        _restore(before)


def _handlers() -> dict[signal.Signals, Handler]:
    return {number: signal.getsignal(number) for number in _ENDS}


def _restore(handlers: Mapping[signal.Signals, Handler]) -> None:
    for number, handler in handlers.items():
        if handler is not None:
            signal.signal(number, handler)
