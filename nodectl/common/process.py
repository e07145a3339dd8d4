"""The process that runs nodectl: its operator, its start, its locale, and the signals that end or bound it."""

from __future__ import annotations

import getpass
import locale
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from time import monotonic
from types import FrameType
from typing import Any


def operator() -> str:
    """Return `login@machine`; below sudo the login that called it."""
    return f"{os.environ.get('SUDO_USER') or login()}@{socket.gethostname()}"


def login() -> str:
    """Return the name of who types, or the number of a user id that has none (`docker run --user 1234`)."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())


@cache
def machine() -> str:
    """Return what this machine is known by: its name, but on a Mac, whose name changes with the network, its UUID."""
    if sys.platform == "darwin":
        argv = ["/usr/sbin/ioreg", "-rd1", "-c", "IOPlatformExpertDevice"]
        try:
            told = subprocess.run(argv, capture_output=True, text=True, timeout=5, check=False).stdout
        except (OSError, subprocess.TimeoutExpired):
            told = ""
        if found := re.search(r'"IOPlatformUUID" = "([^"]+)"', told):
            return found[1]
    return socket.gethostname()


# a start longer ago than this is not that of a command
_MOST_S = 600.0
# a clock that is set meanwhile moves a start by less, and no number of a process comes again so soon
_SAME_START_S = 60.0


def started() -> float:
    """Return when this process was started, in seconds of the monotonic clock; now if the kernel does not tell."""
    import psutil

    now = time.monotonic()
    try:
        age_s = time.time() - psutil.Process().create_time()
    except (psutil.Error, OSError):
        return now
    return now - age_s if 0 <= age_s < _MOST_S else now


def slept_s() -> float:
    """Return the seconds that this machine has slept since its start, in which `time.monotonic` stood still."""
    if sys.platform == "darwin":
        return time.clock_gettime(time.CLOCK_MONOTONIC) - time.clock_gettime(time.CLOCK_UPTIME_RAW)
    return time.clock_gettime(time.CLOCK_BOOTTIME) - time.clock_gettime(time.CLOCK_MONOTONIC)


def processors() -> int:
    """Return how many processors this process may use."""
    if sys.platform == "darwin":
        return os.cpu_count() or 1
    return len(os.sched_getaffinity(0))


def start_of(pid: int) -> str:
    """Return the seconds between this machine's start and a process's; empty if nobody can tell."""
    import psutil

    try:
        # the difference: where the clock is set, both move
        return f"{psutil.Process(pid).create_time() - psutil.boot_time():.2f}"
    except (psutil.Error, OSError):
        return ""


def controller(pid: int) -> dict[str, Any]:
    """Return what `has_ended` needs to know of a process of this machine."""
    return {"host": machine(), "pid": pid, "start": start_of(pid)}


def has_ended(controller: Mapping[str, Any]) -> bool:
    """Return whether the run of these `host`, `pid` and `start` began on this machine and its process is gone."""
    try:
        host, pid, start = str(controller["host"]), int(controller["pid"]), str(controller["start"])
    except (KeyError, TypeError, ValueError):
        return False
    if host != machine() or pid < 1:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    try:
        return abs(float(start_of(pid)) - float(start)) > _SAME_START_S
    except ValueError:
        return False


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
