"""Reads the kernel's log (dmesg in any time form, journalctl -k, /dev/kmsg): what happened to GPUs, links and memory.

A message that belongs to none of the kinds is passed over; one that begins as an Xid and is cut is an error, because
`Xid …: 7` may have been 79.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from nodectl.errors import ParseError
from nodectl.parsers.linux.kernel_lines import is_kernel_line, message_of
from nodectl.parsers.linux.kernel_links import link_change
from nodectl.parsers.numbers import whole
from nodectl.parsers.text import Line, lines_of, lines_with, plain, readable, unreadable

TOOL = "dmesg"
# only a line with one of these is looked at
_WORTH = (
    *("Xid", "fallen off the bus", "The NVIDIA GPU", "peermem", "peer_mem", "limited by", "segfault at"),
    *("achine check", "achine Check", "memory corruption", "memory error"),
    *("Kill process", "Killed process", "oom-kill:", "Link", "link", "arrier"),
)
_ADDRESS = r"[0-9a-fA-F]{4,8}(?::[0-9a-fA-F]{2}){1,2}(?:\.[0-9a-fA-F])?"
_FIND_ADDRESS = re.compile(rf"(?<!\w){_ADDRESS}(?!\w)")
_XID = re.compile(r"NVRM: Xid \((?:PCI:)?(?P<pci>[0-9a-fA-F:.]{5,20})[^)]{0,60}\): (?P<code>\d{1,6}),(?P<rest>.*)")
_PROCESS = re.compile(r"\s*pid=(?P<pid>'?<unknown>'?|\d{1,10})(?:, name=(?P<name>[^,]{0,64}))?")
_SXID = re.compile(
    r"nvidia-nvswitch\d{1,4}: SXid \((?:PCI:)?(?P<pci>[0-9a-fA-F:.]{5,20})\): (?P<code>\d{1,6}),\s*(?P<rest>.*)"
)
_SXID_DETAIL = re.compile(r"Data \{|Severity \d")
_SEVERITY = re.compile(r"\b(?:(Fatal)|(Non-?fatal))\b", re.IGNORECASE)
_NVLINK5 = range(144, 151)
_PEERMEM = re.compile(
    r"(?:nvidia[-_]peermem|nv_peer_mem)\b.{0,300}\b(?:error|fail|unknown symbol|disagrees|invalid)", re.I
)
_MCE = re.compile(
    r"\bmce: .{0,300}(?:machine check|hardware memory error)|\[Hardware Error\]: .{0,300}machine check", re.IGNORECASE
)
_MCE_KILL = re.compile(r"(?i:mce): Killing (?P<name>.{1,64}?):(?P<pid>\d{1,10}) due to hardware memory corruption")
_KILLED = re.compile(r"\bKilled process (?P<pid>\d{1,10})(?:, UID \d{1,10},)? ?\((?P<name>.{0,64}?)\)(?:[\s,]|$)")
_CHOSEN = re.compile(r"\bKill process (?P<pid>\d{1,10}) \((?P<name>.{0,64}?)\)(?:[\s,]|$)")
_OOM_TASK = re.compile(r"\boom-kill:.{0,4000}\btask=(?P<name>[^,]{0,64}),pid=(?P<pid>\d{1,10})")
_SEGFAULT = re.compile(r"(?P<name>[^\s\[]{1,64}[^\[]{0,64})\[(?P<pid>\d{1,10})\]: segfault at ")
_REASON = re.compile(
    r"^(?:sudo: |bash: |sh: \d{0,5}:? ?|dmesg: |journalctl: |-- No entries|No journal files|Failed to open).*"
    r"|.*(?:command not found|Operation not permitted|Permission denied)\s*$"
)


@dataclass(frozen=True, slots=True)
class KernelEvent:
    """One event; `device` and `state` (up, down, init, armed) are those of a link, `severity` is fatal or nonfatal."""

    kind: str
    time: str | None
    pci: str | None
    code: int | None
    pid: int | None
    process: str | None
    severity: str | None
    device: str | None
    state: str | None
    text: str


@dataclass(frozen=True, slots=True)
class Dmesg:
    """What the log tells, in its order."""

    events: tuple[KernelEvent, ...]


def parse_dmesg(text: str) -> Dmesg:
    """ParseError where the text is no kernel log, says why there is none, or an Xid is cut."""
    text = plain(text)
    events: list[KernelEvent] = []
    named: Line | None = None  # the GPU of which the next lines tell
    chosen: KernelEvent | None = None  # whom the kernel is about to kill, until it says that it did
    for line in readable(lines_with(text, _WORTH)):
        if "NVRM: The NVIDIA GPU" in line.text:
            named = line
        event = _event(line)
        if event is None:
            continue
        if event.kind == "gpu_lost" and event.pci is None and named is not None and line.number - named.number <= 3:
            event = _of_named(event, named)
        if event.kind == "oom":
            if "Killed process" in event.text:
                chosen = None
            else:
                chosen, event = event, chosen if chosen and chosen.pid != event.pid else None
        if event is not None:
            events.append(event)
    if chosen is not None:
        events.append(chosen)
    if not events:
        _require_log(lines_of(text, TOOL))
    return Dmesg(tuple(_without_details(events)))


def _event(line: Line) -> KernelEvent | None:
    time, text = message_of(line.text)
    for read in (_nvidia, _memory, _crash):
        event = read(text)
        if event is not None:
            return replace(event, time=time)
    if "NVRM: Xid" in text or "SXid (" in text:
        raise unreadable(TOOL, line, "an Xid without its end")
    link = link_change(text)
    if link is None:
        return None
    return replace(_found(link.kind, text), time=time, device=link.device, state=link.state)


def _found(kind: str, text: str, match: re.Match[str] | None = None) -> KernelEvent:
    named = match.groupdict() if match else {}
    address = named.get("pci")
    if address is None and kind not in ("oom", "segfault", "mce"):
        somewhere = _FIND_ADDRESS.search(text)
        address = somewhere[0] if somewhere else None
    return KernelEvent(
        kind=kind,
        time=None,
        pci=address,
        code=whole(named.get("code") or ""),
        pid=whole(named.get("pid") or ""),
        process=named.get("name") or None,
        severity=None,
        device=None,
        state=None,
        text=text,
    )


def _nvidia(text: str) -> KernelEvent | None:
    if "Xid" not in text:
        if "fallen off the bus" in text and "NVRM" in text:
            return _found("gpu_lost", text)
        return _found("peermem", text) if _PEERMEM.search(text) else None
    if match := _XID.search(text):
        event = _found("xid", text, match)
        if who := _PROCESS.match(match["rest"]):
            name = (who["name"] or "").strip()
            event = replace(event, pid=whole(who["pid"]), process=None if name in ("", "<unknown>") else name)
        return replace(event, severity=_severity(match["rest"])) if event.code in _NVLINK5 else event
    if match := _SXID.search(text):
        return replace(_found("sxid", text, match), severity=_severity(match["rest"]))
    return None


def _of_named(event: KernelEvent, named: Line) -> KernelEvent:
    """Drivers wrap the sentence: its first line has the GPU and the time, its third what happened."""
    time, text = message_of(named.text)
    address = _FIND_ADDRESS.search(text)
    return replace(event, time=event.time or time, pci=address[0] if address else None, text=f"{text} … {event.text}")


def _severity(text: str) -> str | None:
    match = _SEVERITY.search(text)
    if match is None:
        return None
    return "fatal" if match[1] else "nonfatal"


def _memory(text: str) -> KernelEvent | None:
    if "available PCIe bandwidth, limited by" in text:
        return _found("pcie_limited", text)
    if match := _MCE_KILL.search(text):
        return _found("mce", text, match)
    return _found("mce", text) if _MCE.search(text) else None


def _crash(text: str) -> KernelEvent | None:
    if match := _KILLED.search(text) or _CHOSEN.search(text) or _OOM_TASK.search(text):
        return _found("oom", text, match)
    if match := _SEGFAULT.match(text):
        return _found("segfault", text, match)
    return None


def _without_details(events: list[KernelEvent]) -> Iterator[KernelEvent]:
    """A switch's error is three lines, in any order; a log may have been searched for one of them."""
    is_detail = [event.kind == "sxid" and bool(_SXID_DETAIL.search(event.text)) for event in events]
    told = {(e.pci, e.code) for e, detail in zip(events, is_detail, strict=True) if e.kind == "sxid" and not detail}
    for event, detail in zip(events, is_detail, strict=True):
        if detail:
            if (event.pci, event.code) in told:
                continue
            told.add((event.pci, event.code))
        yield event


def _require_log(lines: list[Line]) -> None:
    said = [line for line in readable(lines) if line.text.strip()]
    for line in said:
        if _REASON.match(line.text.strip()) and not message_of(line.text).time:
            if len(said) > 5:
                break
            raise ParseError(f"{TOOL}: it printed no log: {line.text.strip()[:200]}")
    if not any(is_kernel_line(line.text) for line in said):
        raise unreadable(TOOL, next(line for line in lines if line.text.strip()), "no line of a kernel log")
