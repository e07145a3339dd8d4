"""Reads fabricmanager.log, and the lines of fabric manager and its start script in a journal: what is wrong."""

from __future__ import annotations

import re
from dataclasses import dataclass

from nodectl.facts.parsers.text import foreign, lines_of, readable, whole

TOOL = "fabricmanager-log"
# `[Feb 25 2025 13:59:45] [INFO] [tid 1803] …`; some write the day of the week too, some no thread
_STAMPED = re.compile(
    r"\[(?P<time>(?:\w{3} )?\w{3} [ \d]?\d \d{4} [\d:]{8})\]\s*\[(?P<level>[A-Z]+)\]\s*(?:\[tid \d+\]\s*)?(?P<text>.*)"
)
_JOURNAL = re.compile(
    r"(?:nv-fabricmanager|nvidia-fabricmanager-start\.sh)\[\d{1,10}\]:\s*(?:\[(?P<level>[A-Z]+)\]\s*)?(?P<text>.*)"
    r"|systemd\[1\]: (?P<unit>(?:nvidia-fabricmanager\.service: |Started .{0,60}[Ff]abric ?[Mm]anager).*)"
)
# what it prints before it has a log
_BARE = re.compile(
    r"(?P<text>(?:detected (?:NVSwitch|number of NVSwitches)|request to query NVSwitch|fabric manager ).*)"
)
_SWITCH = re.compile(
    r"detected NVSwitch (?P<severity>fatal|non-fatal) error (?P<code>\d{1,6})\b"
    r"(?:.*?pci bus id (?P<bus_id>[0-9a-fA-F:.]{7,16}))?(?:.*?\bport (?P<port>\d{1,3}))?"
)
_WRONG = re.compile(r"\b(?:fail(?:ed|ure)?|error|fatal|abort\w*|mismatch|don'?t match|non-?fatal|timed? ?out)\b", re.I)
# it runs: what it could not do before is over, what a switch reported is not
_STARTED = re.compile(
    r"Successfully configured all the available .{0,20}NVSwitches|^Started .{0,60}[Ff]abric ?[Mm]anager"
)
_WRONG_LEVELS = ("ERROR", "WARNING", "CRITICAL", "FATAL")


@dataclass(frozen=True, slots=True)
class FabricManagerEvent:
    """One line that tells of trouble; `time` and `level` as printed, None if the line has none.

    `sxid`, `severity` (fatal, non-fatal), `bus_id` and `port` are those of an NVSwitch's error.
    """

    time: str | None
    level: str | None
    text: str
    sxid: int | None = None
    severity: str | None = None
    bus_id: str | None = None
    port: int | None = None


@dataclass(frozen=True, slots=True)
class FabricManagerLog:
    """The events, and how many lines are fabric manager's."""

    events: tuple[FabricManagerEvent, ...]
    lines: int


def parse_fabricmanager_log(text: str) -> FabricManagerLog:
    """Read the output; raise ParseError if no line is fabric manager's."""
    lines = lines_of(text, TOOL)
    events: list[FabricManagerEvent] = []
    count = 0
    for line in readable(lines):
        match = _STAMPED.search(line.text) or _JOURNAL.search(line.text) or _BARE.fullmatch(line.text.strip())
        if match is None:
            continue
        count += 1
        named = match.groupdict()
        message = (named["text"] or named.get("unit") or "").strip()
        if _STARTED.search(message):
            events = [event for event in events if event.sxid is not None]
        level = named.get("level")
        # a line is as grave as its level says: settings, told at INFO, have names like ABORT_CUDA_JOBS_ON_FM_EXIT
        if level in _WRONG_LEVELS or (level is None and _WRONG.search(message)):
            events.append(_event(named.get("time"), level, message[:400]))
    if not count:
        raise foreign(TOOL, lines, "no line of fabric manager's")
    return FabricManagerLog(tuple(events), count)


def _event(time: str | None, level: str | None, message: str) -> FabricManagerEvent:
    switch = _SWITCH.search(message)
    if switch is None:
        return FabricManagerEvent(time, level, message)
    code, port = whole(switch["code"]), whole(switch["port"] or "")
    return FabricManagerEvent(time, level, message, code, switch["severity"], switch["bus_id"], port)
