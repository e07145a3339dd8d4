"""Reads fabricmanager.log, and fabric manager's lines in a journal: what it says is wrong."""

from __future__ import annotations

import re
from dataclasses import dataclass

from nodectl.parsers.text import foreign, lines_of, readable

TOOL = "fabricmanager-log"
_STAMPED = re.compile(
    r"\[(?P<time>\w{3} \w{3} [ \d]\d \d{4} [\d:]{8})\]\s*\[(?P<level>[A-Z]+)\]\s*\[tid \d+\]\s*(?P<text>.*)"
)
_JOURNAL = re.compile(r"nv-fabricmanager\[\d{1,10}\]:\s*(?P<text>.*)")
_VERSIONS = re.compile(
    r"driver interface version (?P<manager>[\d.]+) don'?t match with driver version (?P<driver>[\d.]+\d)"
)
_WRONG = re.compile(r"\b(?:fail(?:ed|ure)?|error|fatal|abort\w*|mismatch|don'?t match|non-?fatal|timed? ?out)\b", re.I)
_WRONG_LEVELS = ("ERROR", "WARNING", "CRITICAL", "FATAL")


@dataclass(frozen=True, slots=True)
class FabricManagerEvent:
    """One line that tells of trouble; `time` and `level` as printed, None where the line has none."""

    time: str | None
    level: str | None
    text: str


@dataclass(frozen=True, slots=True)
class FabricManagerLog:
    """`manager_version` and `driver_version` are those that do not match, where it says so."""

    events: tuple[FabricManagerEvent, ...]
    manager_version: str | None
    driver_version: str | None
    lines: int


def parse_fabricmanager_log(text: str) -> FabricManagerLog:
    """ParseError where no line is fabric manager's."""
    lines = lines_of(text, TOOL)
    events: list[FabricManagerEvent] = []
    versions: re.Match[str] | None = None
    count = 0
    for line in readable(lines):
        match = _STAMPED.search(line.text) or _JOURNAL.search(line.text)
        if match is None:
            continue
        count += 1
        named = match.groupdict()
        message = match["text"].strip()
        versions = versions or _VERSIONS.search(message)
        if named.get("level") in _WRONG_LEVELS or _WRONG.search(message):
            events.append(FabricManagerEvent(named.get("time"), named.get("level"), message[:400]))
    if not count:
        raise foreign(TOOL, lines, "no line of fabric manager's")
    manager, driver = (versions["manager"], versions["driver"]) if versions else (None, None)
    return FabricManagerLog(tuple(events), manager, driver, count)
