"""NVIDIA's own diagnostics on the hosts, and what they say of which GPU."""

from __future__ import annotations

from collections.abc import Sequence

from nodectl.errors import ParseError
from nodectl.model.finding import Finding
from nodectl.model.host import Host
from nodectl.model.result import CommandResult, Outcome
from nodectl.model.status import Status
from nodectl.parsers.nvidia.dcgmi_diag import DiagTest, parse_dcgmi_diag
from nodectl.probes.base import ProbeResult, host_finding
from nodectl.transport.base import Transport
from nodectl.transport.fanout import fan_out

_NAME = "dcgm"
# by run level; the longest that NVIDIA speaks of, and as much again
_DEADLINES_S = {1: 300.0, 2: 900.0, 3: 3600.0}
_STATUSES = {"Fail": Status.FAILED, "Warn": Status.WARNING}
_REMEDY = "stop what runs on its GPUs, reset them or reboot, and run `dcgmi diag` again; then ask the vendor"


def diagnose(transport: Transport, hosts: Sequence[Host], run: int, forks: int) -> ProbeResult:
    """`dcgmi diag -r RUN -j` on every host at once; a finding for each test that did not pass."""
    argv = ["dcgmi", "diag", "-r", str(run), "-j"]

    def ask(host: Host) -> CommandResult:
        return transport.run(host, argv, timeout_s=_DEADLINES_S[run])

    answers = dict(fan_out(hosts, ask, forks))
    return ProbeResult(findings=tuple(finding for host in hosts for finding in told(host.name, answers[host])))


def told(host: str, answer: CommandResult) -> list[Finding]:
    """The findings of one host's report; unknown where there is none."""
    if answer.outcome is not Outcome.RAN:
        return [host_finding(_NAME, host, Status.UNKNOWN, answer.error or str(answer.outcome), answer.remedy)]
    try:
        report = parse_dcgmi_diag(answer.stdout or answer.stderr)
    except ParseError as error:
        # a diagnosis that found something ends with another status, and has its report
        return [host_finding(_NAME, host, Status.UNKNOWN, f"dcgmi diag: {error.message}", error.remedy)]
    return [finding for test in report.tests for finding in _of_test(host, test)]


def _of_test(host: str, test: DiagTest) -> list[Finding]:
    """One for each GPU that did not pass; one for the host where the test names no GPU."""
    wrong = {gpu: word for gpu, word in test.gpus.items() if word in _STATUSES}
    if not wrong and test.status in _STATUSES:
        wrong = {"": test.status}
    return [
        host_finding(
            _NAME,
            host,
            _STATUSES[word],
            test.text or word.lower(),
            _REMEDY,
            subject=f"GPU {gpu}, {test.name}" if gpu else test.name,
            action="drain" if _STATUSES[word] is Status.FAILED else "none",
            expected="pass",
        )
        for gpu, word in sorted(wrong.items())
    ]
