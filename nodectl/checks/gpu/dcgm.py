"""Reports what DCGM's health watches complain of, and how its last diagnostic ended."""

from __future__ import annotations

from collections.abc import Iterator

from nodectl.checks.check import Check, Subject, judges_fact
from nodectl.facts.gpu_services import DcgmDiag, DcgmHealth
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
    """Report DCGM's own verdict; a host on which it watches nothing has no finding."""
    status = Status.OK if health.healthy else Status.FAILED if health.failed else Status.WARNING
    actual = "; ".join([health.overall, *health.complaints])[:_SHOWN]
    yield host.finding(DCGM_HEALTH, status, actual=actual, action="drain" if health.failed else "none")


DCGM_DIAG = Check(
    "dcgm_diag",
    looks_at="`dcgmi dmon` of the last `dcgmi diag`, DCGM 4 and later",
    fires="a test found broken hardware; warning: it failed otherwise",
    expected="passed, or not run",
    remedy="drain, then run the test again: `dcgmi diag -r TEST` names the GPU and what to do",
    action="drain",
)
# dcgm_errors.h, dcgmError_t: what lies in the hardware
_BROKEN = {
    4: "an uncorrectable memory error",
    8: "too many retired pages",
    52: "faulty memory",
    57: "an uncorrectable memory error in CUDA",
    58: "a memory error",
    79: "wrong values in the L1 cache",
    80: "row remapping failed",
    81: "an uncontained error (Xid 95)",
    84: "uncorrectable rows were remapped",
    86: "wrong data written to a GPU by a peer",
    87: "wrong data written by a GPU to a peer",
    95: "NVIDIA's extended utility failed",
    103: "a double-bit error",
    106: "too many double-bit errors",
    109: "a fatal NVSwitch error",
    111: "NaN was computed",
    113: "wrong data written to a GPU over PCIe",
    114: "wrong data written by a GPU over PCIe",
    115: "wrong data written to a GPU over NVLink",
    116: "wrong data written by a GPU over NVLink",
    118: "too many errors of on-chip memory",
    120: "a GPU has fallen off the bus",
    132: "too many remapped rows",
}
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
    broken = _BROKEN.get(code)
    status, action = (Status.FAILED, "drain") if broken else (Status.WARNING, "none")
    actual = f"DCGM's error {code}" + (f": {broken}" if broken else "")
    return host.finding(DCGM_DIAG, status, test, actual=actual, action=action)
