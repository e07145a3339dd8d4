"""Tools that did not end in time or printed without end: one finding each, in the place of all that they would tell."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from nodectl.checks.check import Check, Subject, judges
from nodectl.facts.base import NO_TIME, hung
from nodectl.facts.look import Hung
from nodectl.model.finding import Finding
from nodectl.model.status import Status

ORDER = 20

# why a tool hangs, and what ends it
_REMEDIES = {
    "nvidia-smi": "`dmesg` there says why the driver does not answer (Xid, GSP); drain the node and reboot it",
    "df": "a file system there does not answer: `cat /proc/mounts`, then look at its server",
}
_FLOOD = "run it there and see what it prints: a host that is well says less"
HUNG = Check(
    "hung",
    looks_at="all commands",
    fires="a tool did not end in time or printed without end, or no time was left for it, and it tells of what the "
    "profile or the site promises (GPUs, RDMA, mounts); unknown: it tells of something else",
    expected="an answer in time",
    remedy="run it there; a process in state D waits for a driver or a file system",
    action="drain",
)


# keys of commands that tell of a promise begin so
_OF_GPUS = ("nvidia-smi", "dmesg")
_OF_RDMA = ("ib-sysfs", "ibstat", "ibv-devinfo", "rdma-link", "show-gids")
_OF_MOUNTS = ("mounts",)


def _promised(host: Subject) -> tuple[str, ...]:
    """How the keys begin of what tells of GPUs, RDMA ports and mounts, where profile or site promise them."""
    has_rdma = host.wanted is not None and any(nic.kind != "ethernet" for nic in host.wanted.hardware.nics)
    return (
        *(_OF_GPUS if host.gpus else ()),
        *(_OF_RDMA if has_rdma else ()),
        *(_OF_MOUNTS if host.variables.get("mounts") else ()),
    )


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
    """Failed where the profile's or the site's word cannot be held against anything."""
    promised = _promised(host)
    return Status.FAILED if any(key.startswith(promised) for key in keys) else Status.UNKNOWN


def told_once(host: Subject, findings: Sequence[Finding]) -> Sequence[Finding]:
    """Without the unknown ones that only repeat what the check `hung` says, where it is among them."""
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
