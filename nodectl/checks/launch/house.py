"""GPUs before a job, as `nodectl health` judges them: the driver's errors since boot, and unsound memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from nodectl.checks.check import Check, Judgement, Subject, judges
from nodectl.checks.gpu import memory, xid
from nodectl.checks.launch.candidate import Candidate
from nodectl.model.facts import Unread
from nodectl.model.finding import Finding
from nodectl.model.status import Status

ORDER = 15

_SUDOERS = "let the login read it: `nodectl sudoers`; or start without that look: --skip {name}"
GPU_ERRORS = Check(
    "launch_xid",
    fires="an Xid or SXid since boot, by health's catalogue; warning: the log could not be read",
    expected="no error of a GPU since boot",
)


@judges(GPU_ERRORS, reads=("gpu_count", "kernel_events", "lab", "gpus"))
def gpu_errors(host: Candidate) -> Iterator[Finding]:
    """Judge Xid messages since boot: a GPU that fell off the bus an hour ago ends the job in its first collective."""
    if host.gpu_count and not host.borrows("kernel"):
        yield from _as_one(host, GPU_ERRORS, (xid.log,), _SUDOERS.format(name="xid"))


GPU_MEMORY = Check(
    "launch_gpu_memory",
    fires="uncorrectable errors since the driver was loaded; memory or a GPU that waits for a reset, or is worn out",
    expected="sound memory, and no reset pending",
)


@judges(GPU_MEMORY, reads=("gpu_count", "gpus"))
def gpu_memory(host: Candidate) -> Iterator[Finding]:
    """Memory that is known to be bad ends the job, or spoils its numbers."""
    if host.gpu_count:
        gpus = host.facts.get("gpus")
        if isinstance(gpus, Unread):
            actual, remedy = f"nvidia-smi -q: {gpus.reason}", f"run `nvidia-smi -q` on {host.host}"
            yield host.finding(GPU_MEMORY, Status.WARNING, actual=actual, remedy=remedy)
        else:
            parts = (memory.recovery, memory.uncorrectable, memory.ecc_pending, *memory.FLAGS)
            yield from _as_one(host, GPU_MEMORY, parts, "run `nvidia-smi -q` there")


def _as_one(host: Candidate, check: Check, parts: Sequence[Judgement[Subject]], unread: str) -> Iterator[Finding]:
    """Yield the parts' findings that are not fine, under one name; what could not be read warns, and stops nobody."""
    findings = [
        finding for part in parts for finding in part(host) if finding.status not in (Status.OK, Status.SKIPPED)
    ]
    distinct = {(finding.actual if finding.status is Status.UNKNOWN else finding): finding for finding in findings}
    for finding in distinct.values():
        if finding.status is Status.UNKNOWN:
            finding = replace(finding, status=Status.WARNING, remedy=unread)
        subject = f"{finding.subject}: " if finding.subject else ""
        yield replace(finding, check=check.id, actual=f"{subject}{finding.actual}")
    if not findings:
        yield host.finding(check, Status.OK, actual="none")
