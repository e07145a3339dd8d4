"""Whether a node that should look at itself does: its timer runs, and the file that it writes is young."""

from __future__ import annotations

from collections.abc import Iterator

from nodectl.checks.check import NO_SYSTEMD, Check, Subject, Threshold, failed_unless, judges, provision
from nodectl.facts.services import TIMER, HealthTimer
from nodectl.model.finding import Finding
from nodectl.model.status import Status

ORDER = 245

AGE_LIMIT = Threshold("health_timer_age_s", 3600, "a look each five minutes; a file of an hour is nobody's any more")
HEALTH_TIMER = Check(
    "health_timer",
    looks_at=f"{TIMER} and its file, live on hosts with nodectl_health_timer",
    fires="not active, or its file is old",
    expected="active",
    remedy=provision("health_timer"),
    thresholds=(AGE_LIMIT,),
    roles=("health_timer",),
)


@judges(HEALTH_TIMER, reads=("health_timer",), variables=("nodectl_health_timer",))
def health_timer(host: Subject) -> Iterator[Finding]:
    """Only where the inventory says that the host has one."""
    timer = host.facts.get("health_timer")
    if not host.variables.get("nodectl_health_timer"):
        return
    yield from host.lacks(HEALTH_TIMER, timer, TIMER)
    if not isinstance(timer, HealthTimer):
        return
    if not timer.systemd:
        yield host.finding(HEALTH_TIMER, Status.SKIPPED, TIMER, actual=NO_SYSTEMD)
        return
    state = timer.state or "not there"
    yield host.finding(HEALTH_TIMER, failed_unless(state == "active"), TIMER, actual=state)
    most = host.threshold(AGE_LIMIT)
    status = failed_unless(timer.age_s is not None and timer.age_s < most)
    expected, actual = f"younger than {most:g} s", "not there" if timer.age_s is None else f"{timer.age_s} s"
    remedy = "look at `journalctl -u nodectl-health.service`"
    yield host.finding(HEALTH_TIMER, status, timer.path, expected=expected, actual=actual, remedy=remedy)
