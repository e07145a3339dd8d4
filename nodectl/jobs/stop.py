"""Ending and removing jobs from any shell: on every host at once, through the supervisor or without it."""

from __future__ import annotations

from collections.abc import Sequence

from nodectl.jobs.node import Answers, ask
from nodectl.model.host import Host
from nodectl.transport.base import Transport

_STOP_S = 20.0
_CLEAN_S = 30.0


def stop(transport: Transport, hosts: Sequence[Host], job_id: str, forks: int) -> Answers:
    """End the job; returns when nothing of it is left on any host that could be reached (about 4 s, at most 10)."""
    return ask(transport, hosts, lambda _: ["stop", job_id], forks=forks, timeout_s=_STOP_S)


def clean(transport: Transport, hosts: Sequence[Host], job_ids: Sequence[str], forks: int) -> Answers:
    """Remove the folders of jobs that have ended; a running one keeps its own. One line a removed or kept folder."""
    return ask(transport, hosts, lambda _: ["clean", *job_ids], forks=forks, timeout_s=_CLEAN_S)
