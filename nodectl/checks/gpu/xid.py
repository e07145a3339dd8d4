"""What the driver reported in the kernel's log since boot: Xids of GPUs, SXids of NVSwitch, peer memory's errors.

One finding for each number on each GPU, however often it came. Where the driver itself says by Xid 154 what a GPU
needs, that is its action, whatever the catalogue has for the error that led to it. The catalogue is xid.yml over
NVIDIA's own list (`nvidia_codes`), with a site's own word on top. NVLink's Xids are judged by the bits of their lines.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from nodectl.checks.check import Check, Subject, judges
from nodectl.checks.gpu.nvidia_codes import NvlinkCode, SxidCode, XidCode, nvlink_cases, sxid_codes, xid_codes
from nodectl.checks.gpu.rules import gpus_of, identity
from nodectl.common.counting import counted
from nodectl.common.resources import table
from nodectl.facts.gpus import Gpus
from nodectl.facts.parsers.linux.dmesg import NVLINK5, Dmesg, KernelEvent
from nodectl.model.finding import Finding
from nodectl.model.status import Status

ORDER = 130

_FILE = Path(__file__).with_name("xid.yml")


@dataclass(frozen=True, slots=True)
class Xid:
    """One number: its meaning, how bad it is, and what to do; `others` says where catalogues disagree.

    `nvidia` is NVIDIA's own action, from its list.
    """

    title: str
    status: str
    action: str
    remedy: str
    nvidia: str = ""
    others: str = ""

    @property
    def severity(self) -> Status:
        """Return the status as findings have it."""
        return Status(self.status)

    @property
    def source(self) -> str:
        """Return whose word the action is, and who says otherwise."""
        return "; ".join(filter(None, [f"NVIDIA: {self.nvidia}" if self.nvidia else "", self.others]))


UNKNOWN = Xid(
    title="not in the catalogue",
    status="warning",
    action="none",
    remedy="look its number up in NVIDIA's list of Xid errors, and name it in nodectl_health: {xid: …}",
)


@cache
def catalogue() -> Mapping[int, Xid]:
    """All numbers that xid.yml or NVIDIA has."""
    document = table(_FILE)
    entries = {number: group["entry"] for group in document["groups"] for number in group["numbers"]}
    entries |= document["xids"]
    listed = xid_codes()
    return {number: _entry(entries.get(number), listed.get(number)) for number in sorted({*entries, *listed})}


def _entry(given: Mapping[str, str] | None, listed: XidCode | None) -> Xid:
    nvidia = listed.actions if listed else "does not list it"
    if given is not None:
        return Xid(**given, nvidia=nvidia)
    if listed is None:
        return UNKNOWN
    return Xid(title=listed.mnemonic, nvidia=nvidia, **_bucket(listed.immediate))


def _bucket(action: str) -> dict[str, str]:
    buckets: dict[str, dict[str, str]] = table(_FILE)["buckets"]
    return buckets.get(action, buckets[""])


def meaning(number: int, site: Mapping[int, Mapping[str, str]] | None = None) -> Xid:
    """Return the catalogue's entry with the site's fields over it; a number that nobody names is a warning."""
    entry = catalogue().get(number, UNKNOWN)
    own = (site or {}).get(number)
    return replace(entry, **own, others="set by this site") if own else entry


_FALLEN, _RECOVERY = 79, 154
# a row was remapped or a page retired: in use from the next reset on
_REMAPPED = (63,)
_LINK = re.compile(r"\bLink (-?\d{1,3})\b")
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
    fires="the profile has GPUs and it could not be read; unknown: the login may not read it, or a line is cut",
    expected="the kernel's log",
)
XID = Check(
    "xid",
    fires="by the catalogue of Xids (xid.yml); one that it does not have: warning",
    expected="no Xid since boot",
)
SXID = Check(
    "sxid",
    fires="a fatal error of NVSwitch, by its line, else by NVIDIA's list; warning: another one",
    expected="no SXid",
)
PEERMEM = Check(
    "peermem",
    fires="warning: GPU memory could not be given to the NIC, or not taken back",
    expected="no error",
    remedy="restart the job; if it comes back, load nvidia_peermem anew, or use the open modules (DMA-BUF)",
    action="restart job",
)


@judges(KERNEL_LOG, XID, SXID, PEERMEM, reads=("kernel_events", "lab", "gpus"))
def log(host: Subject) -> Iterator[Finding]:
    """Judge the kernel's log; on a lab host that is not dressed in a recording it is the machine's."""
    log = host.facts.get("kernel_events")
    if host.borrows("kernel") or host.gpus == 0:
        return
    yield from host.unread(KERNEL_LOG, log, "the kernel's log of this boot", promised=bool(host.gpus))
    yield from host.unknown(log, XID.expected, XID, SXID, PEERMEM)
    if not isinstance(log, Dmesg):
        return
    yield _read_log(host, log)
    unless = f", but for {counted(log.refused, 'line')} that cannot be read" if log.refused else ""
    for check, judge in ((XID, _xids), (SXID, _switch), (PEERMEM, _peermem)):
        yield from host.all_of(check, judge(host, log.events), actual=f"none in the log{unless}")


def _read_log(host: Subject, log: Dmesg) -> Finding:
    if log.is_part:
        actual = f"the log is longer than what was kept of it, which has {counted(len(log.events), 'event')}"
        return host.finding(KERNEL_LOG, Status.UNKNOWN, actual=actual, remedy="run `dmesg` there: it has the rest")
    if not log.refused:
        return host.finding(KERNEL_LOG, Status.OK, actual=f"{len(log.events)} events in it")
    actual = f"{counted(log.refused, 'line')} of an Xid or SXid cut or garbled; {len(log.events)} events in the others"
    remedy = "run `dmesg` there: the line may be of a GPU that is lost"
    return host.finding(KERNEL_LOG, Status.UNKNOWN, actual=actual, remedy=remedy, evidence=log.refused_line)


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
    order = {id(event): number for number, event in enumerate(events)}
    for (place, code), errors in sorted(seen.items()):
        # what the driver asked for before an error says nothing of it
        is_later = place in asked and order[id(asked[place])] >= order[id(errors[-1])]
        yield _xid(host, place, code, errors, asked[place] if is_later else None)


def _place(pci: str | None) -> str:
    """Return `0000:0f:00`, as Xids name a GPU: without its function, which is 0."""
    address = (pci or "?").lower().partition(".")[0]
    return address[-10:] if len(address) > 10 and address[:-10].strip("0") == "" else address


def _xid(host: Subject, place: str, code: int, errors: list[KernelEvent], asked: KernelEvent | None) -> Finding:
    entry = _judged(host, code, errors)
    last = errors[-1]
    status, action, remedy = entry.severity, entry.action, entry.remedy
    actual = f"{entry.title}, {_times(errors)}"
    if code in _REMAPPED and asked is None and _is_remapped(host, place):
        action, remedy = "none", "nothing is pending on it: watch whether its remapped rows grow"
        actual += "; nvidia-smi has no remapping pending"
    if asked is not None and status is not Status.OK:
        word = _TO.search(asked.text)
        number = int(word[1], 16) if word else -1
        new = ("drain", Status.FAILED, "drain the node: the driver asks for an action that is not known here")
        # a line that is cut off takes nothing from what the catalogue says
        action, status, remedy = _ACTIONS.get(number, new) if word else (action, Status.FAILED, remedy)
        actual += f"; the driver asks for: {word[2] or word[1] if word else 'see its line'}"
    actual += f" ({entry.source})" if entry.source else ""
    evidence = "; ".join(filter(None, [last.text, _card(host, place)]))
    subject = f"Xid {code} {place}"
    return host.finding(XID, status, subject, actual=actual, remedy=remedy, action=action, evidence=evidence)


def _is_remapped(host: Subject, place: str) -> bool:
    gpu = next((gpu for gpu in gpus_of(host) if gpu.bus_id and _place(gpu.bus_id) == place), None)
    waits = (gpu.remap_pending, gpu.retired_pages_pending) if gpu else ()
    return False in waits and True not in waits


def _judged(host: Subject, code: int, errors: list[KernelEvent]) -> Xid:
    entry = meaning(code, _site(host))
    if code not in NVLINK5 or code in _site(host):
        return entry
    judged = [_of_link(entry, event, _branch(host)) for event in errors]
    return min(judged, key=lambda xid: xid.severity.rank)


def _of_link(entry: Xid, event: KernelEvent, driver: int | None) -> Xid:
    """Judge one NVLink error by its bits; by its printed word where NVIDIA's table has no such bits."""
    link = (_LINK.search(event.text) or ("", "-1"))[1]
    place = f"{entry.title} on link {link}" if link != "-1" else f"{entry.title}; its line names no link"
    watch = _watch("that GPU", named=link != "-1")
    cases = nvlink_cases(event.code or 0, event.text, driver)
    if cases:
        return _of_bits(replace(entry, title=f"{place}: {cases[0].unit}"), cases[0], watch)
    word = event.severity or "missing"
    entry = replace(entry, title=place, others=f"NVIDIA's table has no such bits: judged by its word, {word}")
    if word == "fatal":
        return entry
    remedy = watch if event.severity else f"its line does not say whether it is fatal: {watch}"
    return replace(entry, status="warning", action="none", remedy=remedy)


def _watch(gpus: str, *, named: bool) -> str:
    return "watch that link" if named else f"look for the link in `nvidia-smi nvlink -e` of {gpus}"


def _of_bits(entry: Xid, case: NvlinkCode, watch: str) -> Xid:
    """Return what NVIDIA advises for the case; a case to ignore that is yet to be looked at is a warning."""
    changes = {
        **_bucket(case.action),
        "nvidia": f"{case.action} / {case.next}, {case.severity} by its bits",
        "others": "",
    }
    if case.action == "IGNORE" and (case.next != "IGNORE" or case.severity != "nonfatal"):
        changes |= {"status": "warning", "remedy": f"{watch}; ask NVIDIA's support if it comes again"}
    return replace(entry, **changes)


def _branch(host: Subject) -> int | None:
    gpus = host.fact("gpus", Gpus)
    major = (gpus.driver_version or "").partition(".")[0] if gpus else ""
    return int(major) if major.isdigit() else None


def _times(errors: list[KernelEvent]) -> str:
    last = f", last at {errors[-1].time}" if errors[-1].time else ""
    return f"{counted(len(errors), 'time')} since boot{last}"


def _card(host: Subject, place: str) -> str:
    return next((identity(gpu) for gpu in gpus_of(host) if gpu.bus_id and _place(gpu.bus_id) == place), "")


def _site(host: Subject) -> Mapping[int, Mapping[str, str]]:
    site: Mapping[int, Mapping[str, str]] = (host.variables.get("nodectl_health") or {}).get("xid", {})
    return site


def _switch(host: Subject, events: tuple[KernelEvent, ...]) -> Iterator[Finding]:
    seen: dict[tuple[str, int | None], list[KernelEvent]] = defaultdict(list)
    for event in events:
        if event.kind == "sxid":
            seen[event.pci or "?", event.code].append(event)
    for (place, code), errors in sorted(seen.items(), key=str):
        yield _sxid(host, f"SXid {code} {place}", errors, sxid_codes().get(code or 0))


def _sxid(host: Subject, subject: str, errors: list[KernelEvent], listed: SxidCode | None) -> Finding:
    links = sorted({int(link[1]) for event in errors if (link := _LINK.search(event.text)) and link[1] != "-1"})
    where = f"on link {', '.join(map(str, links))}" if links else "its lines name no link"
    name = f"{listed.name} ({listed.severity} in NVIDIA's list)" if listed else "NVIDIA's list does not have it"
    printed, grave = {event.severity for event in errors}, listed.severity if listed else ""
    if "fatal" in printed or grave == "always fatal" or (printed == {None} and grave == "fatal"):
        severity, status, action = "fatal", Status.FAILED, "reboot"
        hit = "the whole fabric is hit" if grave == "always fatal" else "the GPUs on that link are hit"
        remedy = f"{hit}: drain, reset all GPUs together (fabric manager stopped), or reboot"
    else:
        severity = "not fatal" if "nonfatal" in printed else "its lines do not say whether it is fatal"
        status, action = Status.WARNING, "none"
        remedy = _watch("all GPUs", named=bool(links))
    actual = f"{severity}, {where}: {name}, {_times(errors)}"
    return host.finding(SXID, status, subject, actual=actual, remedy=remedy, action=action, evidence=errors[-1].text)


def _peermem(host: Subject, events: tuple[KernelEvent, ...]) -> Iterator[Finding]:
    errors = [event for event in events if event.kind == "peermem"]
    if errors:
        yield host.finding(PEERMEM, Status.WARNING, actual=_times(errors), evidence=errors[-1].text)
