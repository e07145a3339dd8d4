"""Several probes one after the other, within the time that there is."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from nodectl.errors import UsageError
from nodectl.model.finding import Finding
from nodectl.model.host import Host
from nodectl.model.status import Status
from nodectl.probes.base import Note, Probe, ProbeOptions, ProbeResult
from nodectl.probes.budget import BudgetError, share_s
from nodectl.probes.references import judged
from nodectl.transport.base import Transport


def run_probes(
    transport: Transport,
    hosts: Sequence[Host],
    wanted: Sequence[tuple[str, Probe]],
    options: ProbeOptions,
    ends_at: float | None,
    note: Note,
    profile_dirs: Sequence[Path] = (),
) -> ProbeResult:
    """Each takes no more than its share of the time until `ends_at`, and leaves what it does not need.

    All is held against the hosts' hardware profiles, those of `profile_dirs` before nodectl's own.

    A probe that does not fit (BudgetError) or cannot be run so (UsageError) is refused while nothing is measured;
    later it is an unknown finding, and what was measured is kept.
    """
    result = ProbeResult()
    for number, (name, run) in enumerate(wanted):
        now = time.monotonic()
        own = None if ends_at is None else now + share_s(ends_at - now, len(wanted) - number)
        try:
            result += run(transport, hosts, replace(options, ends_at=own), note)
        except UsageError as error:
            if not result.measurements:
                raise
            subject = "budget" if isinstance(error, BudgetError) else ""
            told = Finding("", name, Status.UNKNOWN, subject, actual=error.message, remedy=error.remedy)
            result += ProbeResult(findings=(told,))
    return judged(transport, hosts, result, profile_dirs, options.forks)
