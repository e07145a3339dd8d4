"""Reports what DCGM's health watches complain of."""

from __future__ import annotations

from collections.abc import Iterator

from nodectl.checks.check import Check, Subject, judges_fact, warning_unless
from nodectl.facts.gpu_services import DcgmHealth
from nodectl.model.finding import Finding
from nodectl.model.status import Status

ORDER = 128

_SHOWN = 300
DCGM_HEALTH = Check(
    "dcgm_health",
    fires="DCGM says failure; warning: it says warning",
    expected="healthy",
    remedy="drain, then `dcgmi diag -r 2` there: it names the part",
    action="drain",
)
DCGM_WATCHES = Check(
    "dcgm_watches",
    fires="warning: DCGM's host engine runs, and no health watch is set",
    expected="set",
    remedy="`dcgmi health --set a` there, until DCGM restarts; the role dcgm sets them at each start",
    roles=("dcgm",),
)


@judges_fact(
    DcgmHealth, DCGM_HEALTH, DCGM_WATCHES, reads=("dcgm_health",), unread="what DCGM's watches say", borrowed="sys"
)
def dcgm_health(host: Subject, health: DcgmHealth) -> Iterator[Finding]:
    """Report DCGM's own verdict, or that it watches nothing; a host without its engine has no finding."""
    watched = bool(health.overall)
    yield host.finding(DCGM_WATCHES, warning_unless(watched), actual="set" if watched else "none")
    if not watched:
        return
    status = Status.OK if health.healthy else Status.FAILED if health.failed else Status.WARNING
    actual = "; ".join([health.overall, *health.complaints])[:_SHOWN]
    yield host.finding(DCGM_HEALTH, status, actual=actual, action="drain" if health.failed else "none")
