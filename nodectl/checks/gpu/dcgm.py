"""What DCGM's own health watches complain of."""

from __future__ import annotations

from collections.abc import Iterator

from nodectl.checks.check import Check, Subject, judges_fact
from nodectl.facts.dcgm_health import DcgmHealth
from nodectl.model.finding import Finding
from nodectl.model.status import Status

ORDER = 128

_SHOWN = 300
DCGM_HEALTH = Check(
    "dcgm_health",
    looks_at="`dcgmi health --check`",
    fires="DCGM says failure; warning: it says warning",
    expected="healthy",
    remedy="drain, then `dcgmi diag -r 2` there: it names the part",
    action="drain",
)


@judges_fact(DcgmHealth, DCGM_HEALTH, reads=("dcgm_health",), unread="what DCGM's watches say", borrowed="sys")
def dcgm_health(host: Subject, health: DcgmHealth) -> Iterator[Finding]:
    """DCGM's word is taken as it is; a host where it watches nothing has no finding."""
    status = Status.OK if health.healthy else Status.FAILED if health.failed else Status.WARNING
    actual = "; ".join([health.overall, *health.complaints])[:_SHOWN]
    yield host.finding(DCGM_HEALTH, status, actual=actual, action="drain" if health.failed else "none")
