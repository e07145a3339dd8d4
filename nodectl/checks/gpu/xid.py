"""What the driver reported in the kernel's log since boot: Xids of GPUs, SXids of NVSwitch, peer memory's errors.

One finding for each number on each GPU, however often it came. Where the driver itself says by Xid 154 what a GPU
needs, that is its action, whatever the catalogue has for the error that led to it. The catalogue is xid.yml: NVIDIA's
actions and where operators differ, with a site's own word on top.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from functools import cache
from pathlib import Path
from typing import Any

from nodectl.checks.check import ACTIONS, Check, Subject, judges
from nodectl.checks.gpu.rules import gpus_of, identity
from nodectl.common.counting import counted
from nodectl.model.finding import Finding
from nodectl.model.status import Status
from nodectl.parsers.linux.dmesg import Dmesg, KernelEvent

ORDER = 130

STATUSES = ("ok", "warning", "failed")
_FILE = Path(__file__).with_name("xid.yml")


@dataclass(frozen=True, slots=True)
class Xid:
    """One number: its meaning, how bad it is, and what to do; `others` says where catalogues disagree."""

    title: str
    status: str
    action: str
    remedy: str
    nvidia: str = ""
    others: str = ""

    @property
    def severity(self) -> Status:
        """As findings have it."""
        return Status(self.status)

    @property
    def source(self) -> str:
        """Whose word the action is, and who says otherwise."""
        return "; ".join(filter(None, [f"NVIDIA: {self.nvidia}" if self.nvidia else "", self.others]))


UNKNOWN = Xid(
    title="not in the catalogue",
    status="warning",
    action="none",
    remedy="look its number up in NVIDIA's list of Xid errors, and name it in nodectl_health: {xid: …}",
)
_FIELDS = frozenset(entry.name for entry in fields(Xid))


@cache
def catalogue() -> Mapping[int, Xid]:
    """All numbers of xid.yml."""
    from nodectl.common import bounded_yaml

    document = bounded_yaml.load(_FILE.read_bytes())
    grouped = {number: Xid(**group["entry"]) for group in document["groups"] for number in group["numbers"]}
    return {**grouped, **{number: Xid(**entry) for number, entry in document["xids"].items()}}


def meaning(number: int, site: Mapping[Any, Any] | None = None) -> Xid:
    """The catalogue's entry with the site's fields over it; a number that nobody names is a warning."""
    known = catalogue().get(number, UNKNOWN)
    own = _own(number, site)
    return replace(known, **{**own, "nvidia": known.nvidia, "others": "set by this site"}) if own else known


def _own(number: int, site: Mapping[Any, Any] | None) -> dict[str, str]:
    given = (site or {}).get(number, (site or {}).get(str(number)))
    return {str(name): str(value) for name, value in given.items()} if isinstance(given, Mapping) else {}


def check_site_xid(site: object) -> None:
    """ValueError with the path of the first thing in a site's catalogue that cannot be."""
    if not isinstance(site, Mapping):
        raise ValueError("xid: give a number and its fields, as in {63: {status: failed, action: drain}}")
    for number, entry in site.items():
        where = f"xid.{number}"
        if not str(number).isdigit():
            raise ValueError(f"{where}: {number!r} is no number of an Xid")
        if not isinstance(entry, Mapping):
            raise ValueError(f"{where}: give its fields, as in {{status: failed, action: drain}}")
        unknown = sorted(set(map(str, entry)) - _FIELDS | {"nvidia", "others"} & set(map(str, entry)))
        if unknown:
            raise ValueError(f"{where}.{unknown[0]}: no such field; there are title, status, action and remedy")
        for name, allowed in (("status", STATUSES), ("action", ACTIONS)):
            if name in entry and entry[name] not in allowed:
                raise ValueError(f"{where}.{name}: {entry[name]!r} is none of {', '.join(allowed)}")


_FALLEN, _RECOVERY, _NVLINK5 = 79, 154, range(144, 151)
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
    expected="no Xid since boot",
)
SXID = Check(
    "sxid", looks_at="dmesg", fires="failed: a fatal error of NVSwitch; warning: another one", expected="no SXid"
)
PEERMEM = Check(
    "peermem",
    looks_at="dmesg",
    fires="warning: GPU memory could not be given to the NIC, or not taken back",
    expected="no error",
    remedy="restart the job; if it comes back, load nvidia_peermem anew, or use the open modules (DMA-BUF)",
    action="restart job",
)


@judges(KERNEL_LOG, XID, SXID, PEERMEM, reads=("kernel_events", "lab", "gpus"))
def log(host: Subject) -> Iterator[Finding]:
    """The log is the machine's on a lab host that is not dressed in a recording."""
    log = host.facts.get("kernel_events")
    if host.borrows("kernel") or host.gpus == 0:
        return
    yield from host.unread(KERNEL_LOG, log, "the kernel's log of this boot")
    yield from host.unknown(log, XID.expected, XID, SXID, PEERMEM)
    if not isinstance(log, Dmesg):
        return
    yield host.finding(KERNEL_LOG, Status.OK, actual=f"{len(log.events)} events in it")
    for check, judge in ((XID, _xids), (SXID, _switch), (PEERMEM, _peermem)):
        yield from host.all_of(check, judge(host, log.events), actual="none in the log")


def _xids(host: Subject, events: tuple[KernelEvent, ...]) -> Iterator[Finding]:
    seen: dict[tuple[str, int], list[KernelEvent]] = defaultdict(list)
    for event in events:
        if event.kind == "xid" and event.code is not None:
            seen[_place(event.pci), event.code].append(event)
    for event in events:
        # some drivers say it in words only
        if event.kind == "gpu_lost" and (_place(event.pci), _FALLEN) not in seen:
            seen[_place(event.pci), _FALLEN].append(event)
    asked = {place: errors[-1] for (place, code), errors in seen.items() if code == _RECOVERY}
    for (place, code), errors in sorted(seen.items()):
        yield _xid(host, place, code, errors, asked.get(place))


def _place(pci: str | None) -> str:
    """`0000:0f:00`, as Xids name a GPU: without its function, which is 0."""
    words = (pci or "?").lower().partition(".")[0]
    return words[-10:] if len(words) > 10 and words[:-10].strip("0") == "" else words


def _xid(host: Subject, place: str, code: int, errors: list[KernelEvent], asked: KernelEvent | None) -> Finding:
    known = meaning(code, _site(host))
    last = errors[-1]
    status, action, remedy = known.severity, known.action, known.remedy
    if code in _NVLINK5 and not any(event.severity == "fatal" for event in errors):
        nonfatal = last.severity == "nonfatal"
        status, action = Status.WARNING, "none"
        remedy = "watch the link that the line names" if nonfatal else "the line does not say whether it is fatal"
    actual = f"{known.title}, {_times(errors)}"
    if asked is not None and status is not Status.OK:
        word = _TO.search(asked.text)
        number = int(word[1], 16) if word else -1
        action, status, remedy = _ACTIONS.get(number, ("drain", Status.FAILED, "do what the line of Xid 154 says"))
        actual += f"; the driver asks for: {word[2] or word[1] if word else 'see its line'}"
    actual += f" ({known.source})" if known.source else ""
    evidence = "; ".join(filter(None, [last.text, _card(host, place)]))
    subject = f"Xid {code} {place}"
    return host.finding(XID, status, subject, actual=actual, remedy=remedy, action=action, evidence=evidence)


def _times(errors: list[KernelEvent]) -> str:
    last = f", last at {errors[-1].time}" if errors[-1].time else ""
    return f"{counted(len(errors), 'time')} since boot{last}"


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
    for (place, code), errors in sorted(seen.items(), key=str):
        fatal = any(event.severity == "fatal" for event in errors)
        severity = "not fatal" if errors[-1].severity else "it does not say whether it is fatal"
        status, action, remedy = Status.WARNING, "none", "watch the link that the line names"
        if fatal:
            severity, status, action = "fatal", Status.FAILED, "reboot"
            remedy = "drain, reset all GPUs together (fabric manager stopped), or reboot"
        actual, subject = f"{severity}, {_times(errors)}", f"SXid {code} {place}"
        evidence = errors[-1].text
        yield host.finding(SXID, status, subject, actual=actual, remedy=remedy, action=action, evidence=evidence)


def _peermem(host: Subject, events: tuple[KernelEvent, ...]) -> Iterator[Finding]:
    errors = [event for event in events if event.kind == "peermem"]
    if errors:
        yield host.finding(PEERMEM, Status.WARNING, actual=_times(errors), evidence=errors[-1].text)
