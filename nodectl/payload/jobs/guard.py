"""The process above a job's supervisor, which ends the job if the supervisor dies or freezes."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from typing import Any, Dict, NoReturn

from . import shared_memory, syscalls
from .contain import Containment
from .failures import SUPERVISOR_DIED, row
from .folder import JobFolder
from .heartbeat import FAILED, STOPPED
from .process import is_stopped, send

_END_S = 10.0
_SLICE_S = 1.0
_TIDY_S = 0.2  # ranks may die with their supervisor; Python's resource trackers then remove their shared memory
_GONE = f"{SUPERVISOR_DIED}; its guard ended the job"
_FROZEN = "the job's supervisor there was stopped, or did not move, for {:g} s; its guard ended the job"


class Guard:
    """The supervisor's view of its guard."""

    def __init__(self, pid: int, lifeline: int) -> None:
        self._pid, self._lifeline = pid, lifeline

    @classmethod
    def fork(cls, job: JobFolder, containment: Containment, lease_s: float) -> Guard:
        """Return in a child of the calling process, the supervisor; the calling process guards it and never returns."""
        reader, writer = os.pipe()
        supervisor = os.fork()
        if supervisor:
            try:
                _guard(supervisor, reader, lease_s, job, containment)
            finally:
                os._exit(1)
        os.close(reader)
        os.set_blocking(writer, False)
        syscalls.become_subreaper()
        return cls(containment.guard, writer)

    def beat(self) -> None:
        """Show the guard that the supervisor is not frozen."""
        with contextlib.suppress(BlockingIOError, BrokenPipeError):
            os.write(self._lifeline, b"\0")

    def lives(self) -> bool:
        """Tell whether it has not ended: the supervisor is its child."""
        return os.getppid() == self._pid

    def is_stopped(self) -> bool:
        """Tell whether a signal has stopped it."""
        return is_stopped(self._pid)

    def kill(self) -> None:
        """End the guard, which does not guard."""
        send(self._pid, signal.SIGKILL)


def _guard(supervisor: int, lifeline: int, lease_s: float, job: JobFolder, containment: Containment) -> NoReturn:
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):  # the supervisor follows them
        signal.signal(number, signal.SIG_IGN)
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2 and int(name) != lifeline:
            with contextlib.suppress(OSError):  # the handle that listed the folder
                os.close(int(name))
    why = _failure(supervisor, lifeline, lease_s)
    if why:
        segments = containment.mapped()
        send(supervisor, signal.SIGKILL)
        time.sleep(_TIDY_S)
        containment.kill(_END_S, _reap)
        shared_memory.remove(segments)
        with contextlib.suppress(OSError):  # a full disk must not prevent the kill
            _write_end(job, why)
        containment.remove()
    os._exit(0)


def _failure(supervisor: int, lifeline: int, lease_s: float) -> str:
    """Wait for the supervisor's end; return "" if it left in good order, else how it failed.

    A guard that was stopped itself must not take that time for the supervisor's silence, so each wait counts as one
    slice at most.
    """
    slice_s, silent_s = min(_SLICE_S, lease_s / 4), 0.0
    while silent_s <= lease_s:
        begun_s = time.monotonic()
        if not select.select([lifeline], [], [], slice_s)[0]:
            silent_s += min(time.monotonic() - begun_s, slice_s)
        elif os.read(lifeline, 65536):
            silent_s = 0.0
        else:
            return _GONE if os.waitpid(supervisor, 0)[1] else ""
    return _FROZEN.format(lease_s)


def _reap() -> None:
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _write_end(job: JobFolder, why: str) -> None:
    state = job.state()
    if state["final"] or not job.exists:
        return
    end: Dict[str, Any] = {"state": STOPPED}
    if not job.stop_requested:
        end = {"state": FAILED, "failures": [*state.get("failures", ()), row("supervisor", why, time.time())]}
    job.write_state({**state, **end, "final": True, "ended_at": time.time()})
