"""What the distribution gives to programs beside the kernel: the C library and the time zone."""

import re
from dataclasses import dataclass

from nodectl.errors import ParseError
from nodectl.facts.base import script, text_fact

# a container image may lack getconf's value (musl), and a minimal one /etc/localtime
_SHOW = """\
printf 'glibc %s\\n' "$(getconf GNU_LIBC_VERSION 2>/dev/null | sed 's/^glibc //')"
printf 'zone %s\\n' "$(readlink -f /etc/localtime 2>/dev/null | sed -n 's|.*/zoneinfo/||p')"
printf 'offset %s\\n' "$(date +%z)"
"""
_COMMAND = script("userland", _SHOW, hardware=True)
_LINES = re.compile(r"glibc (?P<glibc>[\d.]*)\nzone (?P<zone>\S*)\noffset (?P<offset>[+-]\d{4})\n?")


@dataclass(frozen=True, slots=True)
class Userland:
    """`glibc` is None where the C library is another one; `time_zone` a name of the tz database, else the offset."""

    glibc: str | None
    time_zone: str


def _parse(text: str) -> Userland:
    match = _LINES.fullmatch(text)
    if match is None:
        raise ParseError(f"userland: {text[:200]!r} does not name the C library and the time zone")
    # the posix and right trees hold the same zones, and some images link Etc/UTC, others UTC
    zone = re.sub(r"^(posix/|right/|Etc/)", "", match["zone"])
    return Userland(match["glibc"] or None, zone or f"UTC{match['offset']}".replace("UTC+0000", "UTC"))


def _words(userland: Userland) -> str:
    return f"glibc {userland.glibc or 'not there'}, time zone {userland.time_zone}"


FACT = text_fact("userland", _COMMAND, _parse, _words, row=305)
