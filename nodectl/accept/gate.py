"""The short acceptance before a job: health, a matrix product, pairs and a collective, some twenty seconds."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

from nodectl import __version__
from nodectl.accept.course import Course, LookAt, Surroundings
from nodectl.accept.means import look
from nodectl.accept.plan import make_plan
from nodectl.accept.steps import Level
from nodectl.model.acceptance import Acceptance
from nodectl.model.host import Host
from nodectl.probes.base import Note
from nodectl.probes.lost import Watched

# a busy machine is no fault; who waits for a job does not wait for ever
_PATIENCE = 3.0


def tried(transport: Watched, hosts: Sequence[Host], look_at: LookAt, note: Note, forks: int) -> Acceptance:
    """Return the hosts' verdicts, of which nothing is kept; a step that takes several times its plan is unknown."""
    means = look(transport, hosts, forks)
    steps = [replace(step, planned_s=_PATIENCE * step.planned_s) for step in make_plan(means, Level.GATE, None, {})]
    around = Surroundings({host.name: host for host in hosts}, means, transport, look_at, note, forks)
    begun = Acceptance("", str(Level.GATE), "", time.time(), None, "", __version__, tuple(steps))
    return Course(around, begun, lambda _: None, limited=True).run()
