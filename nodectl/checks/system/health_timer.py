"""Whether a node that should look at itself does: its timer runs, and the file that it writes is young."""

from __future__ import annotations

from collections.abc import Iterator

from nodectl.checks.check import NOT_SETTABLE, Check, Subject, Threshold, failed_unless, judges
from nodectl.facts.health_timer import TIMER, HealthTimer
from nodectl.model.facts import Unread
from nodectl.model.finding import Finding
from nodectl.model.status import Status

ORDER = 245

AGE_LIMIT = Threshold("health_timer_age_s", 3600, "a look each five minutes; a file of an hour is nobody's any more")
HEALTH_TIMER = Check(
    "health_timer",
    looks_at=f"{TIMER} and its file, live on hosts with nodectl_health_timer",
    fires="not active, or its file is old",
    expected="active",
    remedy="run `nodectl provision --tags health_timer`",
    thresholds=(AGE_LIMIT,),
    roles=("health_timer",),
)


@judges(HEALTH_TIMER, reads=("health_timer",), variables=("nodectl_health_timer",))
def health_timer(host: Subject) -> Iterator[Finding]:
    """Only where the inventory says that the host has one."""
    timer = host.facts.get("health_timer")
    if timer is None or not host.variables.get("nodectl_health_timer"):
        return
    if isinstance(timer, Unread):
        status = Status.FAILED if timer.kind == "absent" else Status.UNKNOWN
        yield host.finding(HEALTH_TIMER, status, TIMER, actual=timer.reason)
    if not isinstance(timer, HealthTimer):
        return
    if not timer.systemd:
        actual = f"{NOT_SETTABLE}: systemd is not process 1"
        yield host.finding(HEALTH_TIMER, Status.SKIPPED, TIMER, actual=actual)
        return
    state = timer.state or "not there"
    yield host.finding(HEALTH_TIMER, failed_unless(state == "active"), TIMER, actual=state)
    most = host.threshold(AGE_LIMIT)
    young = timer.age_s is not None and timer.age_s < most
    actual = f"{timer.age_s} s" if timer.age_s is not None else "not there"
    remedy = "look at `journalctl -u nodectl-health.service`"
    yield host.finding(
        HEALTH_TIMER,
        failed_unless(young),
        timer.path,
        expected=f"younger than {most:g} s",
        actual=actual,
        remedy=remedy,
    )
