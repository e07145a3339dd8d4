"""A burn-in: load until the time is over, looks meanwhile, and each thing said once with how often it was seen."""

import time
from collections.abc import Sequence

from nodectl.ledger.accept import course as module
from nodectl.ledger.accept.course import burn
from nodectl.model.finding import Finding
from nodectl.model.host import Host
from nodectl.model.measurement import Measurement
from nodectl.model.status import Status
from nodectl.probes.base import ProbeResult
from tests.ledger.accept.made import found

_HOSTS = [Host("node01", "node01"), Host("node02", "node02")]


def _gemm(value: float, host: str = "node01") -> Measurement:
    return Measurement("gemm", (host,), value, "TFLOPS", f"{host} GPU 0", conditions={"gpu": 0, "precision": "bf16"})


def _quiet(hosts: Sequence[Host]) -> Sequence[Finding]:
    return [Finding(host.name, "gpu_temperature", Status.OK) for host in hosts]


def test_what_fails_in_some_rounds_is_said_once_with_how_often() -> None:
    rounds = 0

    def load(ends_at: float) -> ProbeResult:
        nonlocal rounds
        rounds += 1
        time.sleep(0.02)
        bad = (found("node02", Status.FAILED, subject="slow"),) if rounds % 2 else ()
        return ProbeResult((_gemm(100.0),), (*bad, Finding("", "gemm", Status.UNKNOWN, "budget")))

    result = burn(_quiet, [load], _HOSTS, time.monotonic() + 0.5, lambda _: None)
    (finding,) = result.findings
    assert (finding.host, finding.status) == ("node02", Status.FAILED)
    told, _, whole = finding.evidence.removeprefix("in ").partition(" of ")
    assert 1 < int(told) < int(whole.split()[0]) == rounds - 1


def test_looks_are_taken_under_load_and_the_load_itself_is_no_fault() -> None:
    def hot(hosts: Sequence[Host]) -> Sequence[Finding]:
        return [
            Finding("node01", "gpu_temperature", Status.FAILED, "GPU 3", "drain", "below 90 C", "93 C"),
            Finding("node01", "gpu_processes", Status.WARNING, actual="python computes"),
        ]

    result = burn(hot, [lambda _: ProbeResult()], _HOSTS, time.monotonic() + 2.5, lambda _: time.sleep(0.05))
    (finding,) = result.findings
    assert (finding.check, finding.subject) == ("gpu_temperature", "GPU 3")
    assert "look" in finding.evidence


def test_what_becomes_slower_under_load_is_named() -> None:
    values = iter([100.0, 100.0, 99.0, 95.0, 90.0, 85.0, 80.0, 80.0])
    falling = [ProbeResult((_gemm(value), _gemm(100.0, "node02"))) for value in values]
    (finding,) = module._fallen(falling)
    assert (finding.host, finding.subject) == ("node01", "slower under load")
    assert "80 %" in finding.actual
    assert not module._fallen(falling[:3])
