"""The process that runs nodectl: its operator, its locale, and the signals that end it."""

from __future__ import annotations

import getpass
import locale
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from time import monotonic
from types import FrameType


def operator() -> str:
    """Return `login@machine`; below sudo the login that called it."""
    return f"{os.environ.get('SUDO_USER') or login()}@{socket.gethostname()}"


def login() -> str:
    """Return the name of who types, or the number of a user id that has none (`docker run --user 1234`)."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())


# it is there wherever a C library is of these years, and needs no package of languages; macOS has it since version 15
UTF_8 = "en_US.UTF-8" if sys.platform == "darwin" else "C.UTF-8"


def encoding() -> str:
    """Return the encoding of the environment's locale; empty if this machine has none of that name."""
    former = locale.setlocale(locale.LC_ALL)
    try:
        locale.setlocale(locale.LC_ALL, "")
        return locale.nl_langinfo(locale.CODESET)
    except locale.Error:
        return ""
    finally:
        locale.setlocale(locale.LC_ALL, former)


def is_utf_8() -> bool:
    """Ansible starts in no other."""
    return encoding().upper().replace("-", "") == "UTF8"


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
