"""Software RAID as the kernel sees it (/proc/mdstat): each array, its disks, and those that failed."""

import re
from dataclasses import dataclass

from nodectl.errors import ParseError
from nodectl.facts.base import script, text_fact

_COMMAND = script("mdstat", "[ -e /proc/mdstat ] || exit 3; cat /proc/mdstat", hardware=True)
_ARRAY = re.compile(r"(?P<name>md\S*) : (?P<state>active|inactive|broken)(?: \((?P<mark>[\w-]+)\))?(?P<rest>.*)")
_DISK = re.compile(r"(\S+?)\[\d+\]((?:\([A-Z]\))*)")
_UP = re.compile(r"\[(\d+)/(\d+)\]\s+\[([U_]+)\]")
_END = re.compile(r"^unused devices:.*\s*\Z", re.MULTILINE)
_BUSY = re.compile(r"(recovery|resync|reshape|check)\s*=\s*([\d.]+%|\S+)")


@dataclass(frozen=True, slots=True)
class Array:
    """One array; `wanted` and `working` disks are None for levels that have no spare copy (raid0, linear)."""

    name: str
    state: str
    disks: tuple[str, ...]
    failed: tuple[str, ...]
    wanted: int | None = None
    working: int | None = None
    busy: str | None = None


@dataclass(frozen=True, slots=True)
class Raid:
    """The arrays in the kernel's order; none on most hosts."""

    arrays: tuple[Array, ...]


def _parse(text: str) -> Raid:
    if not text.startswith("Personalities"):
        raise ParseError(f"mdstat: {text[:80]!r} does not begin as /proc/mdstat does")
    if not _END.search(text):  # the kernel ends it so, also where it has no array
        raise ParseError("mdstat: the output is cut: no line of unused devices ends it")
    parts = re.split(r"^(?=md\S* : )", text, flags=re.MULTILINE)[1:]
    return Raid(tuple(_array(part) for part in parts))


def _array(part: str) -> Array:
    head, _, rest = part.partition("\n")
    match = _ARRAY.fullmatch(head.rstrip())
    if match is None:
        raise ParseError(f"mdstat: {head[:120]!r} is no array")
    disks = _DISK.findall(match["rest"])
    count, busy = _UP.search(rest), _BUSY.search(rest)
    return Array(
        name=match["name"],
        state=match["state"],
        disks=tuple(name for name, _ in disks),
        failed=tuple(name for name, marks in disks if "(F)" in marks),
        wanted=int(count[1]) if count else None,
        working=int(count[2]) if count else None,
        busy=f"{busy[1]} {busy[2]}" if busy else None,
    )


def _words(raid: Raid) -> str:
    return ", ".join(f"{array.name} {array.working or len(array.disks)} disks" for array in raid.arrays) or "no array"


FACT = text_fact("raid", _COMMAND, _parse, _words, absent="the kernel has no software RAID", row=815)
