"""Reads the kernel's log (dmesg, journalctl -k): what happened to GPUs and memory.

Only the kernel's own lines are read: what a program wrote there, or what a logger's line quotes, is passed over. Events
without a reader here may have an entry in `kernel_messages`. A line that begins as an Xid and is cut is refused and
counted, because `Xid …: 7` may have been 79.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import NamedTuple

from nodectl.errors import ParseError
from nodectl.facts.parsers.linux.kernel_messages import message_of, message_words
from nodectl.facts.parsers.text import RANK_TAG, Line, foreign, lines_of, lines_with, plain, readable, unreadable, whole

TOOL = "dmesg"
# only a line with one of these is looked at
_WORTH = (
    *("Xid", "fallen off the bus", "The NVIDIA GPU", "peermem", "peer_mem"),
    *("achine check", "achine Check", "memory corruption", "memory error"),
    *("Kill process", "Killed process", "oom-kill:"),
)
_ADDRESS = r"[0-9a-fA-F]{4,8}(?::[0-9a-fA-F]{2}){1,2}(?:\.[0-9a-fA-F])?"
_FIND_ADDRESS = re.compile(rf"(?<!\w){_ADDRESS}(?!\w)")
_XID = re.compile(
    r"NVRM: Xid \((?:PCI:)?(?P<pci>[0-9a-fA-F:.]{5,20})[^)]{0,60}\): (?P<code>\d{1,6})(?:[,:;]?\s|,|$)(?P<rest>.*)"
)
_PROCESS = re.compile(r"\s*pid=(?P<pid>'?<unknown>'?|\d{1,10})(?:, name=(?P<name>[^,]{0,64}))?")
_SXID = re.compile(
    r"nvidia-nvswitch\d{1,4}: SXid \((?:PCI:)?(?P<pci>[0-9a-fA-F:.]{5,20})\): "
    r"(?P<code>\d{1,6})(?:[,:;]?\s|,|$)\s*(?P<rest>.*)"
)
# also behind what is left of a damaged head, and behind another line's cut beginning
_BEGINS_AS_XID = re.compile(
    r"(?:[^A-Za-z]{0,60}|.{0,400}<[0-7]>\[\s{0,12}\d{1,12}\.\d{1,9}\]\s?)"
    r"(?:NVRM: (?:Xid|.{0,80}fallen off the bus)|nvidia-nvswitch\d{1,4}: SXid)"
)
# no line of the kernel is as long
_LONGEST = 20_000
_SHOWN = 160
# and no record has as many lines
_LONGEST_RECORD = 200
_SXID_DETAIL = re.compile(r"Data \{|Severity \d")
_SEVERITY = re.compile(r"\b(?:(Fatal)|(Non-?fatal))\b", re.IGNORECASE)
# errors of NVLink from Blackwell on: their lines say how bad they are
NVLINK5 = range(144, 151)
_PEERMEM = re.compile(
    r"(?:nvidia[-_]peermem|nv_peer_mem)\b.{0,300}\b(?:error|fail|unknown symbol|disagrees|invalid)", re.I
)
_MCE = re.compile(
    r"\bmce: .{0,300}(?:machine check(?! (?:polling|injector))|hardware memory error)"
    r"|\[Hardware Error\]: .{0,300}machine check",
    re.IGNORECASE,
)
_MCE_KILL = re.compile(
    r"(?i:mce)(?: 0x[0-9a-f]{1,16})?: Killing (?P<name>.{1,64}?):(?P<pid>\d{1,10}) due to hardware memory corruption"
)
_KILLED = re.compile(r"\bKilled process (?P<pid>\d{1,10})(?:, UID \d{1,10},)? ?\((?P<name>.{0,64}?)\)(?:[\s,]|$)")
_CHOSEN = re.compile(r"\bKill process (?P<pid>\d{1,10}) \((?P<name>.{0,64}?)\)(?:[\s,]|$)")
_OOM_TASK = re.compile(r"\boom-kill:.{0,4000}\btask=(?P<name>[^,]{0,64}),pid=(?P<pid>\d{1,10})")
# the first that fits counts
_EVENTS = (
    *(("mce", pattern) for pattern in (_MCE_KILL, _MCE)),
    *(("oom", pattern) for pattern in (_KILLED, _CHOSEN, _OOM_TASK)),
)
_REASON = re.compile(
    r"^(?:sudo: |bash: |sh: \d{0,5}:? ?|dmesg: |journalctl: |No journal files|Failed to open).*"
    r"|.*(?:command not found|Operation not permitted|Permission denied)\s*$"
)

# journalctl's own lines, in the words of any language: where the log begins, a boot, or that there is no entry
_NOTE = re.compile(r"\s*-- .{1,200}--\s*")


@dataclass(frozen=True, slots=True)
class KernelEvent:
    """One event; `kind` is one of this module's, or the name of an entry of `kernel_messages`.

    `device` is the part that such an entry names, `severity` is fatal or nonfatal.
    """

    kind: str
    time: str | None
    pci: str | None
    code: int | None
    pid: int | None
    process: str | None
    severity: str | None
    device: str | None
    text: str


@dataclass(frozen=True, slots=True)
class Dmesg:
    """The log's events, in its order.

    `refused`: how many lines could not be read though they tell of something; `refused_line` is the last of them.
    `is_part`: the log is longer than what was kept of it.
    """

    events: tuple[KernelEvent, ...]
    refused: int = 0
    refused_line: str = ""
    is_part: bool = False


_PRIORITY = re.compile(r"^<\d{1,3}>", re.MULTILINE)
_WRAPPED = 3  # lines after the first of a sentence that drivers wrap


def parse_dmesg(text: str) -> Dmesg:
    """Read the output; raise ParseError if the text is no kernel log, or says why there is none."""
    text = plain(text)
    events: list[KernelEvent] = []
    refused: list[Line] = []
    cut_at = text.count("\n") + 1  # a last line that no newline ends may be cut: this is its number
    header: Line | None = None  # it names the GPU of which the next lines tell
    rows: list[str] = []
    is_raw = _PRIORITY.search(text) is not None
    for line in _unfolded(lines_with(text, (*_WORTH, *message_words()))):
        message = _message_of(line.text)
        is_record = message.level is not None or (message.time is not None and not is_raw)
        if not is_record:
            rows = rows or text.split("\n")
            if _is_below_a_users(rows[max(0, line.number - _LONGEST_RECORD) : line.number - 1], is_raw):
                continue
        header = line if "NVRM: The NVIDIA GPU" in line.text else header
        # of a wrapped sentence only the first line has a priority
        above = header if header and line.number - header.number <= _WRAPPED else None
        try:
            event = _event(line, may_be_cut=line.number == cut_at)
            if event is not None and is_raw and not (above or is_record):
                raise unreadable(TOOL, line, "each other record has a priority: anybody can have written this line")
        except ParseError:
            refused.append(line)
            continue
        if event is not None and event.kind == "gpu_lost" and event.pci is None and above:
            event = _with_gpu(event, above)
        events += [event] if event else []
    if not events and not refused:
        _require_log(lines_of(text, TOOL))
    shown = f"line {refused[-1].number}: {_message_of(refused[-1].text).text[:_SHOWN]}" if refused else ""
    return Dmesg(tuple(_without_details(_without_choices(events))), len(refused), shown)


def _without_choices(events: list[KernelEvent]) -> list[KernelEvent]:
    """Return the events without the kernel's choice of a process to kill, if the log says that it was killed."""
    killed = [event for event in events if event.kind == "oom"]
    choices = {
        id(choice)
        for choice, following in pairwise(killed)
        if "Killed process" not in choice.text and ("Killed process" in following.text or choice.pid == following.pid)
    }
    return [event for event in events if id(event) not in choices]


def _unfolded(lines: Iterable[Line]) -> Iterator[Line]:
    r"""Return the lines, a message of several of them (`dmesg -r` prints it as one, with \x0a between) taken apart."""
    for line in lines:
        if r"\x0a" not in line.text:
            yield line
            continue
        first, *others = line.text.split(r"\x0a")
        before = first[: len(first) - len(_message_of(first).text)]
        yield Line(line.number, first)
        yield from (Line(line.number, before + other) for other in others)


def _is_below_a_users(rows: Sequence[str], is_raw: bool) -> bool:
    """Return whether the record that a line without time and level continues is no word of the kernel's."""
    messages = (_message_of(row) for row in reversed(rows))
    first = next((one for one in messages if one.level is not None or (one.time is not None and not is_raw)), None)
    return first is not None and not first.is_kernels


def _event(line: Line, *, may_be_cut: bool) -> KernelEvent | None:
    if len(line.text) > _LONGEST:
        raise unreadable(TOOL, line, "no message is as long as that")
    message = _message_of(line.text)
    time, text = message.time, message.text
    # an audit line quotes what programs are called and were told
    if not message.is_kernels or text.startswith("audit: type="):
        return None
    found = ((kind, pattern.search(text)) for kind, pattern in _EVENTS)
    event = _nvidia(text) or next((_event_of(kind, text, match) for kind, match in found if match), None)
    if event is not None and not (may_be_cut and event.code is not None and text.endswith(f": {event.code}")):
        return replace(event, time=time)
    if _BEGINS_AS_XID.match(text):
        raise unreadable(TOOL, line, "an Xid without its end")
    if catalogued := message_of(text):
        return replace(_event_of(catalogued[0].name, text), time=time, device=catalogued[1])
    return None


def _event_of(kind: str, text: str, match: re.Match[str] | None = None) -> KernelEvent:
    values = match.groupdict() if match else {}
    address = values.get("pci")
    if address is None and kind not in ("oom", "mce"):
        mention = _FIND_ADDRESS.search(text)
        address = mention[0] if mention else None
    return KernelEvent(
        kind=kind,
        time=None,
        pci=address,
        code=whole(values.get("code") or ""),
        pid=whole(values.get("pid") or ""),
        process=values.get("name") or None,
        severity=None,
        device=None,
        text=text,
    )


def _nvidia(text: str) -> KernelEvent | None:
    if "Xid" not in text:
        if "fallen off the bus" in text and text.startswith("NVRM"):
            return _event_of("gpu_lost", text)
        return _event_of("peermem", text) if _PEERMEM.match(text) else None
    if match := _XID.match(text):
        event = _event_of("xid", text, match)
        if process := _PROCESS.match(match["rest"]):
            name = (process["name"] or "").strip()
            event = replace(event, pid=whole(process["pid"]), process=None if name in ("", "<unknown>") else name)
        return replace(event, severity=_severity(match["rest"])) if event.code in NVLINK5 else event
    if match := _SXID.match(text):
        return replace(_event_of("sxid", text, match), severity=_severity(match["rest"]))
    return None


def _with_gpu(event: KernelEvent, header: Line) -> KernelEvent:
    """Drivers wrap the sentence: its first line has the GPU and the time, its third what happened."""
    time, text, *_ = _message_of(header.text)
    address = _FIND_ADDRESS.search(text)
    return replace(event, time=event.time or time, pci=address[0] if address else None, text=f"{text} … {event.text}")


def _severity(text: str) -> str | None:
    match = _SEVERITY.search(text)
    return None if match is None else "fatal" if match[1] else "nonfatal"


def _without_details(events: list[KernelEvent]) -> Iterator[KernelEvent]:
    """Yield the events, a switch's error once: it is three lines, in any order, and a log may hold one of them."""
    is_detail = [event.kind == "sxid" and bool(_SXID_DETAIL.search(event.text)) for event in events]
    reported = {(e.pci, e.code) for e, detail in zip(events, is_detail, strict=True) if e.kind == "sxid" and not detail}
    for event, detail in zip(events, is_detail, strict=True):
        if detail:
            if (event.pci, event.code) in reported:
                continue
            reported.add((event.pci, event.code))
        yield event


def _require_log(lines: list[Line]) -> None:
    written = [line for line in readable(lines) if line.text.strip()]
    if all(_NOTE.fullmatch(line.text) for line in written) and written:
        raise ParseError(f"{TOOL}: it printed no log: {written[-1].text.strip()[:200]}")
    for line in written:
        if _REASON.match(line.text.strip()) and not _message_of(line.text).time:
            if len(written) > 5:
                break
            raise ParseError(f"{TOOL}: it printed no log: {line.text.strip()[:200]}")
    messages = (_message_of(line.text) for line in written)
    if not any(message.time is not None or _DRIVER.match(message.text) for message in messages):
        raise foreign(TOOL, lines, "no line of a kernel log")


_CLOCK = r"\d\d:\d\d:\d\d(?:[.,]\d{1,9})?"
_DAY = r"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)"
_MONTH = r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)"
_BRACKET = rf"\d{{1,12}}\.\d{{1,9}}|{_DAY}\s{_MONTH}\s+\d{{1,2}}\s{_CLOCK}\s\d{{4}}"  # seconds since boot, -T
_STAMP = (
    rf"\d{{4}}-\d\d-\d\d[T ]{_CLOCK}(?:Z|[+-]\d\d:?\d\d)?"  # iso, short-iso
    rf"|{_MONTH}\s+\d{{1,2}}\s{_CLOCK}"  # short
)
_PREFIX = re.compile(
    r"(?:<(?P<raw>\d{1,3})>)?"  # facility and level as one number, dmesg -r
    r"(?:(?P<facility>[a-z]{2,8}\d?)\s{0,6}:(?P<level>[a-z]{2,7})\s{0,6}:\s)?"  # dmesg -x
    rf"(?:\[\s{{0,12}}(?P<bracket>{_BRACKET})\s{{0,12}}\]\s?(?:\[\s{{0,12}}[TC]\d{{1,9}}\]\s?)?|(?P<stamp>{_STAMP})\s)?"
)
# journald and syslog name the host and who spoke; the time since boot may follow
_SPEAKER = re.compile(
    r"(?:(?:\S{1,255} (?:kernel|(?P<program>[\w@./-]{1,100})\[\d{1,10}\])|kernel):\s)?"
    r"(?:\[\s{0,12}\d{1,12}\.\d{1,9}\]\s)?"
)
_LONGEST_TAG = 300
_LEVELS = {name: n for n, name in enumerate(("emerg", "alert", "crit", "err", "warn", "notice", "info", "debug"))}
_DRIVER = re.compile(r"[A-Za-z_][\w.-]{0,60}(?:\[\d{1,10}\])?(?: [\w.:/@#-]{0,40}\d[\w.:/@#-]{0,40}){0,2}:(?:\s|$)")


class _Message(NamedTuple):
    """One message: its time as printed, None if the line has none, what it says, and its level where it is printed.

    `is_kernels`: nothing before it says that another than the kernel wrote it.
    """

    time: str | None
    text: str
    level: int | None = None
    is_kernels: bool = True


def _message_of(line: str) -> _Message:
    if "<std" in line[:_LONGEST_TAG]:
        line = RANK_TAG.sub("", line, count=1)
    match = _PREFIX.match(line)
    if match is None:
        return _Message(None, line)
    time = match["bracket"] or match["stamp"]
    position, program = match.end(), None
    if time is not None:
        speaker = _SPEAKER.match(line, position)
        position, program = (speaker.end(), speaker["program"]) if speaker else (position, None)
    elif line.startswith("kernel: "):
        position = len("kernel: ")
    # what a program writes to /dev/kmsg has another facility than the kernel's 0, whatever it asks for
    facility, level = divmod(int(match["raw"]), 8) if match["raw"] else (0, _LEVELS.get(match["level"] or ""))
    is_kernels = facility == 0 and match["facility"] in (None, "kern") and program is None
    return _Message(time, line[position:].strip(), level, is_kernels)
