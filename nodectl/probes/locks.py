"""One nodectl at a time on a host, and none beside somebody's work: both are settled before anything is measured."""

from __future__ import annotations

import getpass
import resource
import secrets
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from nodectl.facts import gpus, slurm
from nodectl.facts.base import read_fact
from nodectl.facts.gpus import Gpus
from nodectl.facts.slurm import SlurmNode
from nodectl.model.facts import Unread
from nodectl.model.finding import Finding
from nodectl.model.host import Host
from nodectl.model.recording import Recording
from nodectl.model.result import CommandResult
from nodectl.model.status import Status
from nodectl.probes.base import Note
from nodectl.probes.endpoints import failure
from nodectl.probes.events import Events
from nodectl.recordings.collect import collect
from nodectl.transport.base import Transport
from nodectl.transport.fanout import fan_out
from nodectl.transport.payload import run_payload

CHECK = "lock"
_HOLD_S = 45.0
_STOP_S = 2.0
_SHOWN = 4
# of Slurm's states, those in which a job has the node or is leaving it
_ALLOCATED = {"ALLOCATED", "MIXED", "COMPLETING"}
_FORCE = "wait until it is free, leave it out with --limit, or go on with --force"
_DESCRIPTORS = 2
_SPARE_DESCRIPTORS = 256


@dataclass(frozen=True, slots=True)
class Holds:
    """`findings` say why hosts are refused, or, where that was forced, what is going on there."""

    findings: tuple[Finding, ...] = ()
    refused: bool = False


@dataclass(slots=True)
class _Held:
    """The program that holds one host."""

    host: Host
    events: Events = field(default_factory=Events)
    done: list[CommandResult] = field(default_factory=list)

    @property
    def pid(self) -> int | None:
        """The process number of the program that holds the lock; None before it holds it and after it has ended."""
        told = self.events.of("held")
        return int(told[0]["pid"]) if told and not self.done else None


@contextmanager
def held(
    transport: Transport, hosts: Sequence[Host], what: str, *, forks: int, force: bool, note: Note
) -> Iterator[Holds]:
    """The lock of each host that can be reached, from here to the end of the block.

    A host that does not answer is left to what is run on it, which will say so.
    """
    _room_for(len(hosts))
    token, operator = secrets.token_hex(8), f"{getpass.getuser()}@{socket.gethostname()}"
    args = ["--token", token, "--operator", operator, "--what", what]
    holding = {host: _Held(host) for host in hosts}
    try:
        found = dict(fan_out(hosts, lambda host: _take(transport, holding[host], args), forks))
        findings = tuple(each for host in hosts for each in found[host])
        if force and findings:
            findings = tuple(replace(finding, status=Status.WARNING, remedy="") for finding in findings)
            note(f"going on (--force) on {len({finding.host for finding in findings})} hosts that are not free")
        yield Holds(findings, refused=bool(findings) and not force)
    finally:
        _release(transport, list(holding.values()))


def _take(transport: Transport, held: _Held, args: Sequence[str]) -> list[Finding]:
    """Lock the host, and meanwhile ask who works there."""

    def hold() -> None:
        try:
            done = run_payload(transport, held.host, "hold", args, timeout_s=None, on_output=held.events.add)
            held.done.append(done)
        finally:
            held.events.end()

    threading.Thread(target=hold, daemon=True).start()
    asked = collect(transport, held.host, [gpus.REPORT, *slurm.FACT.commands_on(held.host)])
    answer = held.events.wait("held", _HOLD_S)
    findings = [] if answer else _not_held(held)
    for told in held.events.of("held") + held.events.of("busy"):
        findings += [_job(held.host, job) for job in told["jobs"]]
    return findings + (_others(asked) if isinstance(asked, Recording) else [])


def _not_held(held: _Held) -> list[Finding]:
    busy = held.events.of("busy")
    if busy:
        return [_refusal(held.host.name, "nodectl", "is held by " + _holder(busy[0]))]
    if held.events.of("error"):
        reason, _ = failure(held.done[0], held.events)
        return [_refusal(held.host.name, "nodectl", reason, Status.UNKNOWN)]
    if not held.done:
        return [_refusal(held.host.name, "nodectl", f"no answer within {_HOLD_S:g} s", Status.UNKNOWN)]
    return []


def _holder(told: dict[str, object]) -> str:
    operator, what, since = told.get("operator") or "another nodectl", told.get("what"), told.get("since")
    text = f"{operator}" + (f" for '{what}'" if what else "")
    if isinstance(since, int | float) and 0 < since < 1e11:
        text += f" since {datetime.fromtimestamp(since, UTC):%Y-%m-%d %H:%M:%S} UTC"
    return text


def _job(host: Host, job: dict[str, str]) -> Finding:
    return _refusal(
        host.name,
        "job",
        f"runs nodectl's job {job['id']} of {job['operator']} ({job['script']})",
        remedy=f"wait for it (`nodectl jobs show {job['id']}`), leave the host out with --limit, or go on with --force",
    )


def _others(recording: Recording) -> list[Finding]:
    """Work that is not nodectl's."""
    return [*_gpu_processes(recording), *_allocation(recording)]


def _gpu_processes(recording: Recording) -> Iterator[Finding]:
    found = read_fact(gpus.FACT, recording)
    if isinstance(found, Unread) and found.kind == "unknown":
        reason = f"whether its GPUs are in use cannot be told: {found.reason}"
        yield _refusal(recording.host, "gpu", reason, Status.UNKNOWN)
    if not isinstance(found, Gpus):
        return
    running = [
        f"GPU {gpu.index}: {each.pid}{f' {each.name}' if each.name else ''}"
        for gpu in found.devices
        for each in gpu.processes or ()
        # a display server's are of type G
        if each.type is None or "C" in each.type
    ]
    if running:
        more = f" and {len(running) - _SHOWN} more" if len(running) > _SHOWN else ""
        actual = f"processes compute on its GPUs: {', '.join(running[:_SHOWN])}{more}"
        yield _refusal(recording.host, "gpu", actual)


def _allocation(recording: Recording) -> Iterator[Finding]:
    found = read_fact(slurm.FACT, recording)
    if isinstance(found, Unread) and found.kind == "unknown":
        reason = f"whether Slurm has given it to a job cannot be told: {found.reason}"
        yield _refusal(recording.host, "slurm", reason, Status.UNKNOWN)
    if isinstance(found, SlurmNode) and _ALLOCATED & set(found.states):
        actual = f"is Slurm's node {found.name}, {'+'.join(found.states)}: a job has it"
        yield _refusal(recording.host, "slurm", actual)


def _refusal(host: str, subject: str, actual: str, status: Status = Status.FAILED, remedy: str = _FORCE) -> Finding:
    return Finding(
        host, CHECK, status, subject, expected="free", actual=actual, remedy=remedy, kind="host", hosts=(host,)
    )


def _release(transport: Transport, holding: Sequence[_Held]) -> None:
    """End what holds the hosts; where that takes long, the end of the connection does it."""
    waiting = []
    for held_host in holding:
        pid = held_host.pid
        if pid is not None:
            argv = ["kill", "-s", "TERM", str(pid)]
            waiting.append(
                threading.Thread(
                    target=transport.run, args=(held_host.host, argv), kwargs={"timeout_s": _STOP_S}, daemon=True
                )
            )
            waiting[-1].start()
    for thread in waiting:
        thread.join(_STOP_S)


def _room_for(count: int) -> None:
    """A connection is kept for each host: more descriptors, as far as this login may have them."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _DESCRIPTORS * count + _SPARE_DESCRIPTORS
    if soft != resource.RLIM_INFINITY and soft < wanted:
        most = wanted if hard == resource.RLIM_INFINITY else min(hard, wanted)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, most), hard))
