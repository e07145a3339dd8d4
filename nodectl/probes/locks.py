"""One nodectl at a time on a host, and none beside somebody's work: both are settled before anything is measured."""

from __future__ import annotations

import resource
import secrets
import shlex
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from nodectl.common.process import operator
from nodectl.facts.base import read_fact
from nodectl.facts.gpus import GPUS_FACT, REPORT, Gpus
from nodectl.facts.services import SLURM_FACT, SlurmNode
from nodectl.model.facts import Unread
from nodectl.model.finding import Finding
from nodectl.model.host import Host
from nodectl.model.recording import Recording
from nodectl.model.result import Outcome
from nodectl.model.status import Status
from nodectl.payload.common.host_lock import one_line
from nodectl.probes.base import Note, host_finding
from nodectl.probes.events import Background, Event, failure, terminate
from nodectl.probes.lost import Loss
from nodectl.recordings.collect import collect
from nodectl.transport.base import Transport
from nodectl.transport.fanout import fan_out

CHECK, _JOB = "lock", "job"
_HOLD_S = 45.0
_STOP_S = 2.0
_SHOWN = 4
# of Slurm's states, those in which a job has the node or is leaving it
_ALLOCATED = {"ALLOCATED", "MIXED", "COMPLETING"}
_FORCE = "wait until it is free, leave it out with --limit, or go on with --force"
_RESTORE = "if its timer does not restore them in a minute: nodectl tune trial --force or nodectl provision --force"
_DESCRIPTORS = 2
_SPARE_DESCRIPTORS = 256
# what a Mac's kernel takes, though its limit says infinite
_OPEN_MAX = 10240


@dataclass(frozen=True, slots=True)
class Holds:
    """`findings` say why hosts are refused, or, where that was forced, what is going on there."""

    findings: tuple[Finding, ...] = ()
    refused: bool = False
    holders: Sequence[Background] = field(default=(), compare=False, repr=False)

    def heard(self) -> dict[str, float]:
        """Return when each host that is held was heard last, by the monotonic clock."""
        return {holder.host.name: holder.events.heard_at for holder in self.holders if holder.events.of("held")}

    def unreached(self) -> dict[str, Loss]:
        """Return the hosts that could not be asked at all."""
        done = {holder.host.name: holder.done for holder in self.holders}
        return {
            name: Loss(result.error, result.remedy)
            for name, result in done.items()
            if result is not None and result.outcome is Outcome.UNREACHABLE
        }


@contextmanager
def held(
    transport: Transport,
    hosts: Sequence[Host],
    purpose: str,
    *,
    forks: int,
    force: bool,
    note: Note,
    beside_work: bool = False,
) -> Iterator[Holds]:
    """Hold the lock of each host that can be reached, from here to the end of the block.

    A job of nodectl is a reason to refuse also with `force`; with `beside_work` other processes on the GPUs are none. A
    host that does not answer is left to what is run on it, which will say so.
    """
    _room_for(len(hosts))
    args = ["--token", secrets.token_hex(8), "--operator", operator(), "--what", purpose]
    holders: list[Background] = []

    def take(host: Host) -> list[Finding]:
        holder = Background(transport, host, "probes.locks", args, timeout_s=None)
        holders.append(holder)
        return _refusals(transport, host, holder, beside_work)

    try:
        refusals = dict(fan_out(hosts, take, forks))
        findings = tuple(finding for host in hosts for finding in refusals[host])
        force = force and not any(finding.subject == _JOB for finding in findings)
        if force and findings:
            findings = tuple(replace(finding, status=Status.WARNING, remedy="") for finding in findings)
            note(f"going on (--force) on {len({finding.host for finding in findings})} hosts that are not free")
        yield Holds(findings, bool(findings) and not force, holders)
    finally:
        _release(transport, holders)


def _refusals(transport: Transport, host: Host, holder: Background, beside_work: bool) -> list[Finding]:
    """Return findings for jobs and processes there, asked while the lock is taken, and for another's lock."""
    recording = None if beside_work else collect(transport, host, [REPORT, *SLURM_FACT.commands_on(host)])
    findings = _not_held(holder)
    for job in [job for event in holder.events.of("held") + holder.events.of("busy") for job in event["jobs"]]:
        name, operator, script = (one_line(job[key]) for key in ("id", "operator", "script"))
        actual = f"runs nodectl's job {name} of {operator}" + (f" ({script})" if script else "")
        remedy = f"wait for it (`nodectl jobs show {name}`), end it with `nodectl jobs stop {name}`, or use --limit"
        findings.append(_refusal(host.name, _JOB, actual, remedy=remedy))
    if isinstance(recording, Recording):
        findings += [*_gpu_processes(recording), *_allocation(recording)]
    return findings


def _not_held(holder: Background) -> list[Finding]:
    """Return why the host is not ours; waits for its answer."""
    host, events = holder.host.name, holder.events
    if events.wait("held", _HOLD_S):
        return []
    if busy := events.of("busy"):
        if lock := busy[0].get("unknown"):
            remedy = f"as root there, `fuser -v {shlex.quote(str(lock))}` names the process"
            return [_refusal(host, "nodectl", "is held by a process that is no nodectl's", remedy=remedy)]
        if busy[0].get("left"):
            actual = f"still has values of a trial whose nodectl is gone: {_holder(busy[0])}"
            return [_refusal(host, "nodectl", actual, remedy=_RESTORE)]
        return [_refusal(host, "nodectl", "is held by " + _holder(busy[0]))]
    if holder.done is None:
        return [_refusal(host, "nodectl", f"no answer within {_HOLD_S:g} s", Status.UNKNOWN)]
    if errors := events.of("error"):
        remedy = one_line(errors[0].get("remedy") or _FORCE)
        return [_refusal(host, "nodectl", failure(holder.done, events)[0], Status.UNKNOWN, remedy)]
    return []


def _holder(busy: Event) -> str:
    purpose, since = busy.get("what"), busy.get("since")
    text = one_line(busy.get("operator") or "another nodectl") + (f" for '{one_line(purpose)}'" if purpose else "")
    if isinstance(since, int | float) and 0 < since < 1e11:
        text += f" since {datetime.fromtimestamp(since, UTC):%Y-%m-%d %H:%M:%S} UTC"
    return text


def _gpu_processes(recording: Recording) -> Iterator[Finding]:
    gpus_read = read_fact(GPUS_FACT, recording)
    if isinstance(gpus_read, Unread) and gpus_read.kind == "unknown":
        reason = f"whether its GPUs are in use cannot be told: {gpus_read.reason}"
        yield _refusal(recording.host, "gpu", reason, Status.UNKNOWN)
    if not isinstance(gpus_read, Gpus):
        return
    users: dict[str, list[str]] = {}
    for gpu in gpus_read.devices:
        for process in gpu.processes or ():
            if process.type is None or "C" in process.type:  # a display server's are of type G
                users.setdefault(f"{process.pid} {process.name or ''}".rstrip(), []).append(str(gpu.index))
    if running := [f"GPU {','.join(indexes)}: {process}" for process, indexes in users.items()]:
        more = f" and {len(running) - _SHOWN} more" if len(running) > _SHOWN else ""
        actual = f"processes compute on its GPUs: {', '.join(running[:_SHOWN])}{more}"
        yield _refusal(recording.host, "gpu", actual)


def _allocation(recording: Recording) -> Iterator[Finding]:
    node = read_fact(SLURM_FACT, recording)
    if isinstance(node, Unread) and node.kind == "unknown":
        reason = f"whether Slurm has given it to a job cannot be told: {node.reason}"
        yield _refusal(recording.host, "slurm", reason, Status.UNKNOWN)
    if isinstance(node, SlurmNode) and _ALLOCATED & set(node.states):
        actual = f"is Slurm's node {node.name}, {'+'.join(node.states)}: a job has it"
        yield _refusal(recording.host, "slurm", actual)


def _refusal(host: str, subject: str, actual: str, status: Status = Status.FAILED, remedy: str = _FORCE) -> Finding:
    return host_finding(CHECK, host, status, actual, remedy, subject=subject, expected="free")


def _release(transport: Transport, holders: Sequence[Background]) -> None:
    """End what holds the hosts; if that takes long, the end of the connection does it."""
    held = [(holder.host, holder.events.of("held")) for holder in holders if holder.done is None]
    until = time.monotonic() + _STOP_S
    for thread in [terminate(transport, host, int(events[0]["pid"]), _STOP_S) for host, events in held if events]:
        thread.join(max(0.0, until - time.monotonic()))


def _room_for(count: int) -> None:
    """Allow more descriptors, as far as this login may have them: a connection is kept for each host."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _DESCRIPTORS * count + _SPARE_DESCRIPTORS
    if soft != resource.RLIM_INFINITY and soft < wanted:
        most = wanted if hard == resource.RLIM_INFINITY else min(hard, wanted)
        for limit in (most, _OPEN_MAX):
            # a kernel may have a limit of its own below an infinite one
            with suppress(ValueError, OSError):
                resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, limit), hard))
                return
