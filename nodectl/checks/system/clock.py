"""Whether a host's clock is near ours, and kept right by something."""

from __future__ import annotations

from collections.abc import Iterator

from nodectl.checks.check import Check, Subject, Threshold, judges
from nodectl.facts.clock_sync import ClockSync
from nodectl.facts.time import Clock
from nodectl.model.finding import Finding
from nodectl.model.status import Status

ORDER = 20

CLOCK_WARNING_S_LIMIT = Threshold("clock_warning_s", 1.0, "preflight lists of the field ask for less than a second")
CLOCK_FAILED_S_LIMIT = Threshold("clock_failed_s", 5.0, "torchrun's rendezvous drops a host whose clock is 15 s off")
CLOCK = Check(
    "clock",
    looks_at="against ours, and who keeps it",
    fires="beyond the threshold; warning: not synchronised",
    thresholds=(CLOCK_WARNING_S_LIMIT, CLOCK_FAILED_S_LIMIT),
)


@judges(CLOCK, reads=("lab", "time", "clock_sync"))
def clock(host: Subject) -> Iterator[Finding]:
    """Near the operator's clock, and kept right by something; a host that shares its clock has none to keep."""
    found, sync = host.facts.get("time"), host.facts.get("clock_sync")
    if isinstance(found, Clock):
        # the true offset is within error_s above offset_s: only what is off for certain counts
        off_s = max(0.0, found.offset_s, -(found.offset_s + found.error_s))
        least, most = host.threshold(CLOCK_WARNING_S_LIMIT), host.threshold(CLOCK_FAILED_S_LIMIT)
        status = Status.OK if off_s < least else Status.FAILED if off_s >= most else Status.WARNING
        expected, remedy = f"within {least:g} s of ours", "synchronise its clock (chrony)"
        yield host.finding(CLOCK, status, "offset", expected=expected, actual=f"{off_s:.1f} s off", remedy=remedy)
    expected = "synchronised"
    if host.shares("clock"):
        actual = "the clock is the machine's below this host"
        yield host.finding(CLOCK, Status.SKIPPED, "synchronisation", expected=expected, actual=actual)
    elif isinstance(sync, ClockSync):
        status = Status.OK if sync.synchronised else Status.WARNING
        remedy = "look at `chronyc tracking` or `timedatectl` there"
        yield host.finding(CLOCK, status, "synchronisation", expected=expected, actual=sync.told, remedy=remedy)
    else:
        yield from host.unread(CLOCK, sync, expected)
