"""Ends that can be heard: a closed terminal and a polite kill become Ctrl-C, and Ansible's runner gives them back."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

_ENDS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def interruptible() -> Iterator[None]:
    """SIGTERM and SIGHUP are KeyboardInterrupt inside the block, as SIGINT is; only the main thread can see to that."""

    def interrupt(number: int, frame: FrameType | None) -> NoReturn:
        raise KeyboardInterrupt

    with kept():
        if threading.current_thread() is threading.main_thread():
            for number in _ENDS:
                # a job that a shell or nohup made deaf stays deaf
                if signal.getsignal(number) is not signal.SIG_IGN:
                    signal.signal(number, interrupt)
        yield


@contextmanager
def kept() -> Iterator[None]:
    """What handles them before is what handles them after: ansible-runner sets its own and leaves them there."""
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
