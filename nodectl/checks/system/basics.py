"""What all other looks need: tools that answer in time, a right clock, and Python."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from nodectl.checks.check import Check, Subject, Threshold, Told, judges, judges_value, warning_unless
from nodectl.facts.base import NO_TIME, hung
from nodectl.facts.look import Hung
from nodectl.facts.services import Clock, ClockSync, TimeService
from nodectl.facts.versions import Versions
from nodectl.model.finding import Finding
from nodectl.model.status import Status

ORDER = 20


_INSTALL = "synchronise its clock (chrony)"
CLOCK_WARNING_S_LIMIT = Threshold("clock_warning_s", 1.0, "preflight lists of the field ask for less than a second")
CLOCK_FAILED_S_LIMIT = Threshold("clock_failed_s", 5.0, "torchrun's rendezvous drops a host whose clock is 15 s off")
CLOCK = Check(
    "clock",
    fires="beyond the threshold; warning: not synchronised, kept by none or several; unknown: asked too slowly",
    expected="synchronised",
    thresholds=(CLOCK_WARNING_S_LIMIT, CLOCK_FAILED_S_LIMIT),
    roles=("time_sync",),
)


@judges(CLOCK, reads=("lab", "time", "clock_sync", "time_service"))
def clock(host: Subject) -> Iterator[Finding]:
    """Near the operator's clock, and kept right by something; a host that shares its clock has none to keep."""
    clock, sync, service = (
        host.fact("time", Clock),
        host.facts.get("clock_sync"),
        host.fact("time_service", TimeService),
    )
    if clock:
        # the true offset is within error_s above offset_s: only what is off for certain counts
        off_s = max(0.0, clock.offset_s, -(clock.offset_s + clock.error_s))
        offset = _offset(host, off_s)
        yield offset if offset.status is not Status.OK or host.shares("clock") else _if_certain(host, clock, offset)
    if host.shares("clock") or (service and not service.own_clock and not service.services):
        actual = "the host shares its machine's clock"
        yield host.finding(CLOCK, Status.SKIPPED, "synchronisation", actual=actual)
    elif isinstance(sync, ClockSync):
        remedy = "look at `chronyc tracking` or `timedatectl` there"
        yield host.finding(CLOCK, warning_unless(sync.synchronised), "synchronisation", actual=sync.told, remedy=remedy)
    else:
        yield from host.unread(CLOCK, sync)
    if service and service.own_clock:
        yield _service(host, service)


def _if_certain(host: Subject, clock: Clock, finding: Finding) -> Finding:
    most_s = max(abs(clock.offset_s), abs(clock.offset_s + clock.error_s))
    if most_s < host.threshold(CLOCK_WARNING_S_LIMIT):
        return finding
    actual = f"up to {most_s:.1f} s off: it took {clock.error_s:.1f} s to ask"
    remedy = "ask again when the host or the connection is not as slow"
    return replace(finding, status=Status.UNKNOWN, actual=actual, remedy=remedy)


def _service(host: Subject, service: TimeService) -> Finding:
    status = warning_unless(len(service.services) == 1)
    actual = ", ".join(service.services) or "none"
    remedy = "keep one time service, and disable the others" if service.services else _INSTALL
    return host.finding(CLOCK, status, "service", expected="one time service", actual=actual, remedy=remedy)


def _offset(host: Subject, off_s: float) -> Finding:
    least, most = host.threshold(CLOCK_WARNING_S_LIMIT), host.threshold(CLOCK_FAILED_S_LIMIT)
    status = Status.OK if off_s < least else Status.FAILED if off_s >= most else Status.WARNING
    expected, actual = f"within {least:g} s of ours", f"{off_s:.1f} s off"
    return host.finding(CLOCK, status, "offset", expected=expected, actual=actual, remedy=_INSTALL)


# Tools that did not end in time or printed without end: one finding each, in the place of all that they would tell.

# why a tool hangs, and what ends it
_REMEDIES = {
    "nvidia-smi": "`dmesg` there says why the driver does not answer (Xid, GSP); drain the node and reboot it",
    "df": "a file system there does not answer: `cat /proc/mounts`, then look at its server",
}
_FLOOD = "run it there and see what it prints: a host that is well says less"
HUNG = Check(
    "hung",
    fires="a tool did not end in time or printed without end, or no time was left for it, and it tells of what the "
    "profile or the site promises (GPUs, RDMA, mounts); unknown: it tells of something else",
    expected="an answer in time",
    remedy="run it there; a process in state D waits for a driver or a file system",
    action="drain",
)


# keys of commands that tell of a promise begin so
_OF_GPUS = ("nvidia-smi", "dmesg")
_OF_RDMA = ("ib-sysfs", "ibstat", "ibv-devinfo", "rdma-link")
_OF_MOUNTS = ("mounts",)


@judges(HUNG, reads=("hung",))
def in_time(host: Subject) -> Iterator[Finding]:
    """Each tool once, whatever it was asked for."""
    late = host.fact("hung", Hung)
    if late is None:
        return
    for name, waited_s, keys in late.tools:
        asked = f" ({len(keys)} commands: {', '.join(keys)})" if len(keys) > 1 else ""
        flood = name in late.floods
        actual = f"{hung(name, flood=flood)}, {waited_s:.0f} s{asked}"
        remedy = _FLOOD if flood else _REMEDIES.get(name, "")
        yield host.finding(HUNG, _status(host, keys), name, actual=actual, remedy=remedy)
    if late.no_time:
        actual = f"{NO_TIME} for {len(late.no_time)} commands: {', '.join(late.no_time)}"
        yield host.finding(HUNG, _status(host, late.no_time), actual=actual, remedy="look at what took the time there")


def _status(host: Subject, keys: Sequence[str]) -> Status:
    has_rdma = host.wanted is not None and any(nic.kind != "ethernet" for nic in host.wanted.hardware.nics)
    promised = (
        *(_OF_GPUS if host.gpus else ()),
        *(_OF_RDMA if has_rdma else ()),
        *(_OF_MOUNTS if host.variables.get("mounts") else ()),
    )
    return Status.FAILED if any(key.startswith(promised) for key in keys) else Status.UNKNOWN


def told_once(host: Subject, findings: Sequence[Finding]) -> Sequence[Finding]:
    """Return the findings without the unknown ones that only repeat what the check `hung` says."""
    late = host.fact("hung", Hung)
    if late is None or not any(finding.check == HUNG.id for finding in findings):
        return findings
    reasons = (
        *(hung(name, flood=flood) for name, *_ in late.tools for flood in (False, True)),
        *([NO_TIME] if late.no_time else []),
    )
    return [
        finding
        for finding in findings
        if finding.check == HUNG.id
        or finding.status is not Status.UNKNOWN
        or not any(reason in finding.actual for reason in reasons)
    ]


# Whether the host has the Python that probes, jobs and Ansible's modules are run by.

PYTHON3 = Check(
    "python3",
    fires="not installed",
    expected="python3: probes, jobs and Ansible's modules are run by it",
    remedy="install it: `apt-get install python3` or `dnf install python3`",
)


@judges_value(Versions, PYTHON3, reads=("versions",), unread="the system's Python", otherwise=Status.FAILED)
def python3(_: Subject, versions: Versions) -> Told | None:
    """Require the system's own python3, not that of an environment."""
    reason = versions.unavailable.get("python3", "")
    if not (versions.python3 or reason):
        return None
    is_unknown = not versions.python3 and not reason.endswith("is not installed")
    return Told(None if is_unknown else bool(versions.python3), versions.python3 or reason)
