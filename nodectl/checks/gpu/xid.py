"""What the driver reported in the kernel's log since boot: Xids of GPUs, SXids of NVSwitch, peer memory's errors.

One finding for each number on each GPU, however often it came. Where the driver itself says by Xid 154 what a GPU
needs, that is its action, whatever the catalogue has for the error that led to it.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

from nodectl.checks.check import Check, Subject, judges
from nodectl.checks.gpu.rules import gpus_of, identity
from nodectl.checks.gpu.xid_catalogue import meaning
from nodectl.model.finding import Finding
from nodectl.model.status import Status
from nodectl.parsers.linux.dmesg import Dmesg, KernelEvent

ORDER = 130

_FALLEN, _RECOVERY, _NVLINK5 = 79, 154, range(144, 151)
_NONE = "no Xid since boot"
# "changed from 0x0 (None) to 0x1 (GPU Reset Required)"
_TO = re.compile(r"\bto\s+(0x[0-9a-fA-F]+)(?:\s*\(([^)]{1,60})\))?")
# by number, as newer drivers may have other words for them
_ACTIONS = {
    0: ("none", Status.WARNING, "the driver recovered by itself"),
    1: ("reset GPU", Status.FAILED, "drain, then reset the GPU"),
    2: ("reboot", Status.FAILED, "drain, then reboot the node"),
    3: ("drain", Status.FAILED, "end the peer traffic of this GPU, then reset it"),
    4: ("drain", Status.FAILED, "drain the node, then reset the GPU"),
    5: ("drain", Status.FAILED, "drain, then let its IMEX domain recover"),
    6: ("reset GPU", Status.FAILED, "drain, then reset the GPU's bus"),
    7: ("reboot", Status.FAILED, "drain, then reboot the whole system"),
}


KERNEL_LOG = Check(
    "kernel_log",
    looks_at="dmesg, on hosts with GPUs",
    fires="unknown: it could not be read",
    expected="the kernel's log",
)
XID = Check(
    "xid",
    looks_at="dmesg",
    fires="by the catalogue of Xids (xid.yml); one that it does not have: warning",
    expected=_NONE,
)
SXID = Check(
    "sxid", looks_at="dmesg", fires="failed: a fatal error of NVSwitch; warning: another one", expected="no SXid"
)
PEERMEM = Check(
    "peermem",
    looks_at="dmesg",
    fires="warning: GPU memory could not be given to the NIC, or not taken back",
    expected="no error",
    remedy="restart the job; comes it back, load nvidia_peermem anew, or use the open modules (DMA-BUF)",
    action="restart job",
)


@judges(KERNEL_LOG, XID, SXID, PEERMEM, reads=("kernel_events", "lab", "gpus"))
def log(host: Subject) -> Iterator[Finding]:
    """The log is the machine's on a lab host that is not dressed in a recording."""
    found = host.facts.get("kernel_events")
    if host.borrows("kernel") or (host.wanted is not None and host.wanted.hardware.gpus == 0):
        return
    yield from host.unread(KERNEL_LOG, found, "the kernel's log of this boot")
    yield from host.unknown(found, _NONE, XID, SXID, PEERMEM)
    if not isinstance(found, Dmesg):
        return
    yield host.finding(KERNEL_LOG, Status.OK, actual=f"{len(found.events)} events in it")
    yield from host.all_of(XID, _xids(host, found.events), actual="none in the log")
    yield from host.all_of(SXID, _switch(host, found.events), actual="none in the log")
    yield from host.all_of(PEERMEM, _peermem(host, found.events), actual="none in the log")


def _xids(host: Subject, events: tuple[KernelEvent, ...]) -> Iterator[Finding]:
    seen: dict[tuple[str, int], list[KernelEvent]] = defaultdict(list)
    for event in events:
        if event.kind == "xid" and event.code is not None:
            seen[_place(event.pci), event.code].append(event)
    for event in events:
        # some drivers say it in words only
        if event.kind == "gpu_lost" and (_place(event.pci), _FALLEN) not in seen:
            seen[_place(event.pci), _FALLEN].append(event)
    asked = {place: said for (place, code), found in seen.items() if code == _RECOVERY and (said := found[-1])}
    for (place, code), found in sorted(seen.items()):
        yield _xid(host, place, code, found, asked.get(place))


def _place(pci: str | None) -> str:
    """`0000:0f:00`, as Xids name a GPU: without its function, which is 0."""
    words = (pci or "?").lower().partition(".")[0]
    return words[-10:] if len(words) > 10 and words[:-10].strip("0") == "" else words


def _xid(host: Subject, place: str, code: int, found: list[KernelEvent], asked: KernelEvent | None) -> Finding:
    known = meaning(code, _site(host))
    last = found[-1]
    status, action, remedy = known.severity, known.action, known.remedy
    if code in _NVLINK5 and not any(event.severity == "fatal" for event in found):
        nonfatal = last.severity == "nonfatal"
        status, action = Status.WARNING, "none"
        remedy = "watch the link that the line names" if nonfatal else "the line does not say whether it is fatal"
    said = f"{known.title}, {_times(found)}"
    if asked is not None and status is not Status.OK:
        word = _TO.search(asked.text)
        number = int(word[1], 16) if word else -1
        action, status, remedy = _ACTIONS.get(number, ("drain", Status.FAILED, "do what the line of Xid 154 says"))
        said += f"; the driver asks for: {word[2] or word[1] if word else 'see its line'}"
    return host.finding(
        XID,
        status,
        f"Xid {code} {place}",
        actual=said + (f" ({known.source})" if known.source else ""),
        remedy=remedy,
        action=action,
        evidence="; ".join(filter(None, [last.text, _card(host, place)])),
    )


def _times(found: list[KernelEvent]) -> str:
    last = f", last at {found[-1].time}" if found[-1].time else ""
    return f"{len(found)} time{'' if len(found) == 1 else 's'} since boot{last}"


def _card(host: Subject, place: str) -> str:
    return next((identity(gpu) for gpu in gpus_of(host) if gpu.bus_id and _place(gpu.bus_id) == place), "")


def _site(host: Subject) -> Mapping[Any, Any] | None:
    health = host.variables.get("nodectl_health")
    site = health.get("xid") if isinstance(health, Mapping) else None
    return site if isinstance(site, Mapping) else None


def _switch(host: Subject, events: tuple[KernelEvent, ...]) -> Iterator[Finding]:
    seen: dict[tuple[str, int | None], list[KernelEvent]] = defaultdict(list)
    for event in events:
        if event.kind == "sxid":
            seen[event.pci or "?", event.code].append(event)
    for (place, code), found in sorted(seen.items(), key=str):
        fatal = any(event.severity == "fatal" for event in found)
        told = "fatal" if fatal else "not fatal" if found[-1].severity else "it does not say whether it is fatal"
        yield host.finding(
            SXID,
            Status.FAILED if fatal else Status.WARNING,
            f"SXid {code} {place}",
            actual=f"{told}, {_times(found)}",
            remedy="drain, reset all GPUs together (fabric manager stopped), or reboot"
            if fatal
            else "watch the link that the line names",
            action="reboot" if fatal else "none",
            evidence=found[-1].text,
        )


def _peermem(host: Subject, events: tuple[KernelEvent, ...]) -> Iterator[Finding]:
    found = [event for event in events if event.kind == "peermem"]
    if found:
        yield host.finding(PEERMEM, Status.WARNING, actual=_times(found), evidence=found[-1].text)
