"""Whether a host's clock is near ours, and kept right by something."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from nodectl.checks.check import Check, Subject, Threshold, judges, warning_unless
from nodectl.facts.services import Clock, ClockSync, TimeService
from nodectl.model.finding import Finding
from nodectl.model.status import Status

ORDER = 20

_INSTALL = "synchronise its clock (chrony)"
CLOCK_WARNING_S_LIMIT = Threshold("clock_warning_s", 1.0, "preflight lists of the field ask for less than a second")
CLOCK_FAILED_S_LIMIT = Threshold("clock_failed_s", 5.0, "torchrun's rendezvous drops a host whose clock is 15 s off")
CLOCK = Check(
    "clock",
    looks_at="against ours, and who keeps it",
    fires="beyond the threshold; warning: not synchronised, kept by none or several; unknown: asked too slowly",
    expected="synchronised",
    thresholds=(CLOCK_WARNING_S_LIMIT, CLOCK_FAILED_S_LIMIT),
    roles=("time_sync",),
)


@judges(CLOCK, reads=("lab", "time", "clock_sync", "time_service"))
def clock(host: Subject) -> Iterator[Finding]:
    """Near the operator's clock, and kept right by something; a host that shares its clock has none to keep."""
    clock, sync, service = (
        host.fact("time", Clock),
        host.facts.get("clock_sync"),
        host.fact("time_service", TimeService),
    )
    if clock:
        # the true offset is within error_s above offset_s: only what is off for certain counts
        off_s = max(0.0, clock.offset_s, -(clock.offset_s + clock.error_s))
        found = _offset(host, "offset", off_s, f"{off_s:.1f} s off", "ours")
        yield found if found.status is not Status.OK or host.shares("clock") else _if_certain(host, clock, found)
    if host.shares("clock") or (service and not service.own_clock and not service.services):
        actual = "the clock is the machine's below this host"
        yield host.finding(CLOCK, Status.SKIPPED, "synchronisation", actual=actual)
    elif isinstance(sync, ClockSync):
        remedy = "look at `chronyc tracking` or `timedatectl` there"
        yield host.finding(CLOCK, warning_unless(sync.synchronised), "synchronisation", actual=sync.told, remedy=remedy)
    else:
        yield from host.unread(CLOCK, sync)
    if service and service.own_clock:
        yield from _service(host, service)


def _if_certain(host: Subject, clock: Clock, found: Finding) -> Finding:
    """What is near our clock only if the answer came fast was not seen to be near it."""
    most_s = max(abs(clock.offset_s), abs(clock.offset_s + clock.error_s))
    if most_s < host.threshold(CLOCK_WARNING_S_LIMIT):
        return found
    actual = f"up to {most_s:.1f} s off: it took {clock.error_s:.1f} s to ask"
    remedy = "ask again when the host or the connection is not as slow"
    return replace(found, status=Status.UNKNOWN, actual=actual, remedy=remedy)


def _service(host: Subject, service: TimeService) -> Iterator[Finding]:
    """One service keeps the clock, and is content with it itself."""
    status = warning_unless(len(service.services) == 1)
    actual = ", ".join(service.services) or "none"
    remedy = "keep one time service, and disable the others" if service.services else _INSTALL
    yield host.finding(CLOCK, status, "service", expected="one time service", actual=actual, remedy=remedy)
    if service.offset_s is not None:
        actual = f"{service.offset_s:+.6f} s off, says {service.services[0]}"
        yield _offset(host, "service offset", abs(service.offset_s), actual, "its time servers")


def _offset(host: Subject, subject: str, off_s: float, actual: str, reference: str) -> Finding:
    least, most = host.threshold(CLOCK_WARNING_S_LIMIT), host.threshold(CLOCK_FAILED_S_LIMIT)
    status = Status.OK if off_s < least else Status.FAILED if off_s >= most else Status.WARNING
    return host.finding(
        CLOCK, status, subject, expected=f"within {least:g} s of {reference}", actual=actual, remedy=_INSTALL
    )
