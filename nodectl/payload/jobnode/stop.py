"""How a job is ended from a later shell: through its supervisor, and without it where that is dead or deaf."""

from __future__ import annotations

import signal
import time

from .contain import Containment
from .folder import JobFolder
from .heartbeat import STOPPED
from .process import is_alive, send

_SUPERVISOR_S = 7.0  # grace for the ranks, then its parting words; the whole must stay below 10 s
_FORCE_S = 1.5
_POLL_S = 0.02


def end(job: JobFolder) -> None:
    """Stop the job on this host; returns when nothing of it is left, or after about 9 s."""
    state = job.state()
    pid, ticks = int(state.get("pid", 0)), int(state.get("start_ticks", 0))
    if is_alive(pid, ticks):
        send(pid, signal.SIGTERM)
        ends_s = time.monotonic() + _SUPERVISOR_S
        while is_alive(pid, ticks) and time.monotonic() < ends_s:
            time.sleep(_POLL_S)
    force(job)


def force(job: JobFolder) -> None:
    """Kill what is left of supervisor and ranks, and write the last state where the supervisor could not."""
    state = job.state()
    pid, ticks = int(state.get("pid", 0)), int(state.get("start_ticks", 0))
    was_alive = is_alive(pid, ticks)
    if was_alive:
        send(pid, signal.SIGKILL)
    containment = Containment.recorded(job.id, state.get("containment", {}))
    if state.get("containment"):
        containment.kill(_FORCE_S)
        containment.remove()
    if not state["final"] or state["state"] == "received":
        job.write_state({**state, "state": STOPPED, "final": True, "ended_at": time.time()})
