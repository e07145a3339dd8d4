"""Reports what DCGM's health watches complain of, and how its last diagnostic ended."""

from __future__ import annotations

from collections.abc import Iterator

from nodectl.checks.check import Check, Subject, judges_fact, warning_unless
from nodectl.checks.gpu.nvidia_codes import dcgm_errors
from nodectl.facts.gpu_services import DcgmDiag, DcgmHealth
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


DCGM_DIAG = Check(
    "dcgm_diag",
    fires="a test found broken hardware; warning: it failed otherwise",
    expected="passed, or not run",
    remedy="drain, then run the test again: `dcgmi diag -r TEST` names the GPU and what to do",
    action="drain",
)
# of DCGM's errors: broken memory, buses, links and what computes wrong values
_BROKEN = {4, 8, 52, 57, 58, 79, 80, 81, 84, 86, 87, 95, 103, 106, 109, 111, *range(113, 117), 118, 120, 132}
# tests that were interrupted, disabled, not supported by this GPU, for several GPUs only, skipped, or to be repeated
_NO_VERDICT = (47, 48, 60, 68, 78, 117, 130)


@judges_fact(DcgmDiag, DCGM_DIAG, reads=("dcgm_diag",), unread="how DCGM's last diagnostic ended", borrowed="sys")
def dcgm_diag(host: Subject, diag: DcgmDiag) -> Iterator[Finding]:
    """Report each test that ran since the host engine started; a host on which none ran has no finding."""
    verdicts = {test: code for test, code in diag.results.items() if code not in _NO_VERDICT}
    faults = (_ended(host, test, code) for test, code in verdicts.items() if code)
    if verdicts:
        yield from host.all_of(DCGM_DIAG, faults, actual=f"passed: {', '.join(verdicts)}")


def _ended(host: Subject, test: str, code: int) -> Finding:
    status, action = (Status.FAILED, "drain") if code in _BROKEN else (Status.WARNING, "none")
    words = dcgm_errors().get(code)
    actual = f"DCGM's error {code}" + (f": {words}" if words else "")
    return host.finding(DCGM_DIAG, status, test, actual=actual, action=action)
