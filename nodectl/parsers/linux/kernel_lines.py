"""Where a kernel message begins on a line, and when it was: every time form of dmesg, journalctl and /dev/kmsg."""

from __future__ import annotations

import re
from typing import NamedTuple

from nodectl.parsers.text import RANK_TAG

_CLOCK = r"\d\d:\d\d:\d\d(?:[.,]\d{1,9})?"
_DAY = r"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)"
_MONTH = r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)"
_BRACKET = (
    r"\d{1,12}\.\d{1,9}(?:\s+<\s*\d{1,12}\.\d{1,9}>)?"  # seconds since boot, --show-delta
    rf"|\S{{1,10}}\s+\S{{1,10}}\s+\d{{1,2}}\s+{_CLOCK}\s+\d{{4}}"  # -T, in the words of any language
    rf"|{_MONTH}\d\d\s\d\d:\d\d|\+\d{{1,12}}\.\d{{1,9}}"  # -H
)
_STAMP = (
    rf"\d{{4}}-\d\d-\d\d[T ]{_CLOCK}(?:Z|[+-]\d\d:?\d\d)?"  # iso, short-iso
    rf"|{_MONTH}\s+\d{{1,2}}\s{_CLOCK}"  # short
    rf"|{_DAY}\s\d{{4}}-\d\d-\d\d\s{_CLOCK}\s[A-Z]{{2,5}}"  # short-full
    r"|\d{9,12}\.\d{6}"  # short-unix
)
# what a parallel shell or a quotation puts before a line that has a time or a level of its own
_CARRIER = re.compile(
    r"\s{0,16}(?:> ?|[\w.@-]{1,64}: )?\s{0,16}"
    rf"(?=<\d|\d{{1,5}},\d|\[\s{{0,12}}(?:\d|\+\d|{_DAY}|{_MONTH})|{_STAMP}|[a-z]{{2,8}}\d?\s{{0,6}}:[a-z])"
)
_PREFIX = re.compile(
    r"(?:<\d{1,3}>)?"  # the level, raw
    r"(?:[a-z]{2,8}\d?\s{0,6}:[a-z]{2,7}\s{0,6}:\s)?"  # facility and level, dmesg -x
    r"(?:\d{1,5},\d{1,20},(?P<kmsg>\d{1,20}),[^;\s]{0,200};"  # /dev/kmsg
    rf"|\[\s{{0,12}}(?P<bracket>{_BRACKET})\s{{0,12}}\]\s?(?:\[\s{{0,12}}[TC]\d{{1,9}}\]\s?)?"
    rf"|(?P<stamp>{_STAMP})\s)?"
)
# journald and syslog name the host and who spoke; the time since boot may follow
_SPEAKER = re.compile(
    r"(?:(?:\S{1,255} (?:kernel|[\w@./-]{1,100}\[\d{1,10}\])|kernel):\s)?(?:\[\s{0,12}\d{1,12}\.\d{1,9}\]\s)?"
)
_LONGEST_TAG = 300
_DRIVER = re.compile(r"[A-Za-z_][\w.-]{0,60}(?:\[\d{1,10}\])?(?: [\w.:/@#-]{0,40}\d[\w.:/@#-]{0,40}){0,2}:(?:\s|$)")


class Message(NamedTuple):
    """One kernel message: its time as printed, None where the line has none, and what it says."""

    time: str | None
    text: str


def message_of(line: str) -> Message:
    """The line without everything that stands before the message."""
    if "<std" in line[:_LONGEST_TAG]:
        line = RANK_TAG.sub("", line, count=1)
    if line[:1] != "[" and (carried := _CARRIER.match(line)):
        line = line[carried.end() :]
    match = _PREFIX.match(line)
    if match is None:
        return Message(None, line)
    time = match["kmsg"] or match["bracket"] or match["stamp"]
    position = match.end()
    if time is not None:
        speaker = _SPEAKER.match(line, position)
        position = speaker.end() if speaker else position
    elif line.startswith("kernel: "):
        position = len("kernel: ")
    return Message(time, line[position:].strip())


def is_kernel_line(line: str) -> bool:
    """It has a time, or begins as a driver's message does."""
    time, text = message_of(line)
    return time is not None or _DRIVER.match(text) is not None
