"""Finds what tells one machine from another in a tool's text: by its shape, serial numbers by what stands before."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from ipaddress import IPv6Address

# longer forms first; a lookahead takes care that none is a piece of a longer number
_SHAPES = re.compile(
    r"""
    (?P<uuid>  (?<![0-9A-Za-z]) [0-9A-Fa-f]{8} (?:-[0-9A-Fa-f]{4}){3} -[0-9A-Fa-f]{12} (?![0-9A-Za-z]) )
  | (?P<pairs> (?<![0-9A-Za-z]) [0-9A-Fa-f]{2} (?P<s>[:-]) [0-9A-Fa-f]{2} (?:(?P=s)[0-9A-Fa-f]{2}){4,18}
               (?! [0-9A-Za-z] | (?P=s)[0-9A-Fa-f] ) )
  | (?P<ipv6>  (?<![0-9A-Za-z:.]) (?: (?:[0-9A-Fa-f]{1,4}:){7} [0-9A-Fa-f]{1,4}
               | (?:[0-9A-Fa-f]{1,4} (?: :[0-9A-Fa-f]{1,4}){0,6})? ::
                 (?: (?:[0-9A-Fa-f]{1,4}:){0,5} (?:\d{1,3}\.){3}\d{1,3}
                   | [0-9A-Fa-f]{1,4} (?: :[0-9A-Fa-f]{1,4}){0,6} )? )
               (?! [0-9A-Za-z] | [:.][0-9A-Fa-f] ) )
  | (?P<guid>  (?<![0-9A-Za-z.]) (?: [0-9A-Fa-f]{4} (?: :[0-9A-Fa-f]{4}){3} (?!:[0-9A-Fa-f]) | 0x[0-9A-Fa-f]{16}
               | (?=[0-9]*[A-Fa-f]) [0-9A-Fa-f]{16} ) (?![0-9A-Za-z]) )
  | (?P<hex>   (?<![0-9A-Za-z]) (?=[0-9]*[A-Fa-f]) [0-9A-Fa-f]{32} (?![0-9A-Za-z]) )
  | (?P<ipv4>  (?<![0-9A-Za-z.-]) (?:(?:25[0-5]|2[0-4]\d|1?\d?\d)\.){3} (?:25[0-5]|2[0-4]\d|1?\d?\d)
               (?! [0-9A-Za-z_] | \.\d | -\d ) )
    """,
    re.VERBOSE,
)
_SIZES = {6, 8, 20}
# four numbers after such a word are a version
_VERSION = re.compile(r"(?:ersion|VERSION|irmware|fw|FW|release|rev|driver|[vV])[\s:=\"'(]*\Z")
_ZEROS = re.compile(r"(?:^|\.)0\d")
_SERIALS = (
    re.compile(r"(?im)^[^:\n]{0,60}?\bserial(?:[ _]?(?:number|no))?[\"']?\s*[:=]\s*[\"']?([^\s,\"'<]+)"),
    re.compile(r"(?i)<serial>([^<\s]+)</serial>"),
    re.compile(r"(?i)\[SN\][^:\n]*:\s*(\S+)"),
    re.compile(r"(?im)^\s*board_id:\s*(\S+)"),
)
_COLUMNS = re.compile(r"(?im)^[^\n]*\bserial\b[^\n]*,[^\n]*$|^[^\n]*,[^\n]*\bserial\b[^\n]*$")
_SERIAL = re.compile(r"(?=[^\d]*\d)[A-Za-z0-9][A-Za-z0-9_./-]{3,63}")
_HOSTS = (
    re.compile(r"(?m)\bNode(?:Host)?Name=([A-Za-z0-9][A-Za-z0-9_.-]*)"),
    re.compile(r"(?m)^\w{3} [ \d]\d \d\d:\d\d:\d\d ([A-Za-z0-9][A-Za-z0-9_.-]*) kernel:"),
    re.compile(r"(?m)^\d{4}-\d\d-\d\dT\S+ ([A-Za-z0-9][A-Za-z0-9_.-]*) kernel:"),
)
_USERS = re.compile(r"/home/([A-Za-z_][A-Za-z0-9_.-]{2,31})")
# logins that images come with: no person's, and words of the tools besides
_NOBODY = {
    "root",
    "nobody",
    "ubuntu",
    "debian",
    "rocky",
    "centos",
    "fedora",
    "admin",
    "user",
    "core",
    "nvidia",
    "slurm",
}
_TOKEN = re.compile(r"[A-Za-z0-9_]+(?:[-.][A-Za-z0-9_]+)*")
_PARTS = re.compile(r"([-._])")
_LONGEST = 12

Part = tuple[str, str]


def shapes(text: str) -> Iterator[Part]:
    """(kind, value) in their order; kind is empty for what stands between."""
    position = 0
    for match in _SHAPES.finditer(text):
        kind, value = match.lastgroup if match.lastgroup != "s" else "pairs", match.group()
        if kind is None or not _is(kind, value, text, match.start()):
            continue
        yield "", text[position : match.start()]
        yield kind, value
        position = match.end()
    yield "", text[position:]


def _is(kind: str, value: str, text: str, start: int) -> bool:
    if kind == "pairs":
        return (len(value) + 1) // 3 in _SIZES
    if kind == "ipv4":
        return not _ZEROS.search(value) and not _VERSION.search(text, max(0, start - 24), start)
    if kind == "ipv6":
        try:
            IPv6Address(value)
        except ValueError:
            return False
    return True


class Words:
    """Known words, found whole or as whole parts between dashes, dots and underscores; the longest wins."""

    def __init__(self, known: Iterable[str]) -> None:
        self._known = frozenset(known)
        self._firsts = {_PARTS.split(word, maxsplit=1)[0] for word in self._known}

    def find(self, text: str) -> Iterator[Part]:
        """(kind, value) in their order; kind is empty for what stands between."""
        position = 0
        for match in _TOKEN.finditer(text):
            parts = _PARTS.split(match.group())
            start, at = match.start(), 0
            while at < len(parts):
                value = self._at(parts, at) if parts[at] in self._firsts else ""
                if value:
                    yield "", text[position:start]
                    yield "word", value
                    position = start + len(value)
                start += len(value or parts[at])
                at += len(_PARTS.split(value)) if value else 1
        yield "", text[position:]

    def _at(self, parts: Sequence[str], at: int) -> str:
        """The longest known word that begins with the part at `at`."""
        sizes = range(min(len(parts) - at, _LONGEST), 0, -1)
        return next((word for n in sizes if (word := "".join(parts[at : at + n])) in self._known), "")


def serials(text: str) -> set[str]:
    """Serial numbers, by the label or the column that they stand under; board numbers, too."""
    found = {match[1] for pattern in _SERIALS for match in pattern.finditer(text)}
    head = _COLUMNS.search(text)
    if head:
        columns = [name.strip().strip('"').lower() for name in head.group().split(",")]
        at = [n for n, name in enumerate(columns) if name == "serial" or name.endswith(("_serial", ".serial"))]
        rows = (line.split(",") for line in text[head.end() :].splitlines())
        found |= {row[n].strip().strip('"') for row in rows for n in at if n < len(row)}
    return {each for each in found if _SERIAL.fullmatch(each) and each.upper() not in ("N/A", "0000")}


def host_names(text: str) -> set[str]:
    """Names that a scheduler or a log gives the host."""
    return {match[1] for pattern in _HOSTS for match in pattern.finditer(text)} - {"localhost"}


def user_names(text: str) -> set[str]:
    """Logins whose home folders are named."""
    return {match[1] for match in _USERS.finditer(text)} - _NOBODY
