"""Recordings without what identifies machines and people, and copies that are other machines of the same kind."""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from ipaddress import IPv4Address, IPv6Address

from nodectl.model.recording import SITE, Recording
from nodectl.recordings.allowed import NOBODY, Allowed
from nodectl.recordings.numbers import spellings
from nodectl.recordings.pseudonyms import Pseudonyms

_ADDRESSES = {"ipv4", "ipv6"}


class Masker:
    """Pseudonyms for all hosts of a recording together."""

    def __init__(self, hosts: Sequence[str], users: Iterable[str] = ()) -> None:
        width = max(2, len(str(len(hosts))))
        self._hosts = {host: f"host{number:0{width}d}" for number, host in enumerate(hosts, 1)}
        self._words: dict[str, str] = {}
        for host in hosts:
            self._add_host(host, self._hosts[host])
        self._users = 0
        self._addresses: set[str] = set()
        self._pseudonyms = Pseudonyms(secrets.token_bytes(32), {})
        self._allowed = Allowed(lambda word: self._pseudonyms.of("name", word))
        self._add_users(set(users) - {"root"})
        self._finder = Words(self._words)
        self._done: dict[str, str] = {}
        self._done_with = (0, 0)

    def name_of(self, host: str) -> str:
        """Return what a host is called in the masked recording."""
        return self._hosts[host]

    def masked(self, recording: Recording) -> Recording:
        """The recording with pseudonyms everywhere: outputs, complaints and arguments alike."""
        texts = [text for entry in recording.entries.values() for text in (entry.stdout, entry.stderr)]
        self._discover(recording.host, texts)
        self._finder = Words(self._words)
        for text in texts:
            self._allowed.learn(text)
        # both only grow
        if self._done_with != (len(self._words), self._allowed.size):
            self._done, self._done_with = {}, (len(self._words), self._allowed.size)
        entries = {
            self._key(key): replace(
                entry,
                key=self._key(key),
                argv=tuple(self._text(word) for word in entry.argv),
                stdout=self._text(entry.stdout),
                stderr=self._text(entry.stderr),
            )
            for key, entry in recording.entries.items()
        }
        name = None if recording.recorded is None else self._text(recording.recorded)
        return replace(recording, host=self.name_of(recording.host), entries=entries, recorded=name)

    def _key(self, key: str) -> str:
        """Ours say what was asked; that of a site's own check has the name that the site gave it."""
        return SITE + self._text(key.removeprefix(SITE)) if key.startswith(SITE) else key

    def _discover(self, host: str, texts: Iterable[str]) -> None:
        for text in texts:
            for serial in serials(text) - self._words.keys():
                self._words[serial] = self._pseudonyms.of("serial", serial)
            for name in sorted(host_names(text)):
                self._add_host(name, self._hosts[host])
            self._add_users(user_names(text))
            self._add_addresses(text)

    def _add_host(self, name: str, pseudonym: str) -> None:
        short, _, domain = name.partition(".")
        if len(short) < 2 or short.isdigit():  # a digit or a letter stands for too much else; addresses have a shape
            return
        self._words.setdefault(name, pseudonym)
        if domain:
            self._words.setdefault(short, pseudonym)
            self._words.setdefault(domain, "example")

    def _add_addresses(self, text: str) -> None:
        """Those of IPv4 as other numbers, too."""
        for value in {value for kind, value in shapes(text) if kind == "ipv4"} - self._addresses:
            self._addresses.add(value)
            if (made := self._pseudonyms.of("ipv4", value)) != value:
                self._words.update(zip(spellings(value), spellings(made), strict=True))

    def _add_users(self, names: Iterable[str]) -> None:
        self._allowed.mask_logins({name for name in names if len(name) < _SHORTEST})
        for name in sorted({name for name in names if len(name) >= _SHORTEST} - self._words.keys()):
            self._users += 1
            self._words[name] = f"user{self._users}"

    def _text(self, text: str) -> str:
        if text not in self._done:
            self._done[text] = self._masked_text(text)
        return self._done[text]

    def _masked_text(self, text: str) -> str:
        spans, masked, position = self._allowed.given_away(text), [], 0
        for kind, value in _parts(text, self._finder):
            masked.append(self._pseudonym(kind, value) if kind else self._allowed.text(value, spans, position))
            position += len(value)
        return "".join(masked)

    def _pseudonym(self, kind: str, value: str) -> str:
        return self._words[value] if kind == "word" else self._pseudonyms.of(kind, value)


@dataclass(frozen=True, slots=True)
class Template:
    """A host's texts with gaps where its identity stands; each filling is another machine of the same kind."""

    texts: Mapping[str, tuple[Part, ...]]
    names: frozenset[str]

    @classmethod
    def of(cls, texts: Mapping[str, str], host: str = "") -> Template:
        """Serial numbers, UUIDs, GUIDs, MAC addresses and the host's names are the gaps; all else stays."""
        known = {serial for text in texts.values() for serial in serials(text) if not _is_board(serial)}
        names = {name for text in texts.values() for name in host_names(text)} | {host}
        names = {name for name in names if len(name) > 1 and not name.isdigit()}
        finder = Words(known | names)
        return cls({key: tuple(_gaps(text, finder, names)) for key, text in texts.items()}, frozenset(names))

    def filled(self, name: str) -> dict[str, str]:
        """The texts of the machine `name`: always the same ones; those of `node7` and `node8` share no address."""
        counted = re.search(r"[0-9]{1,9}$", name)
        number = int(counted[0]) % 2**12 if counted else None
        made = Pseudonyms(hashlib.sha256(name.encode()).digest(), dict.fromkeys(self.names, name), number)
        return {
            key: "".join(made.of(kind, value) if kind else value for kind, value in parts)
            for key, parts in self.texts.items()
        }


def _is_board(serial: str) -> bool:
    # a vendor's number of the kind of board: all hosts of a kind have the same
    return serial.startswith("MT_")


def _gaps(text: str, finder: Words, names: set[str]) -> Iterator[Part]:
    for kind, value in _parts(text, finder):
        if kind == "word" and value not in names:
            yield "serial", value
        else:
            yield "" if kind in _ADDRESSES else kind, value


def _parts(text: str, finder: Words) -> Iterator[Part]:
    """(kind, value) of shapes and known words, in their order; kind is empty for what stands between."""
    for kind, value in shapes(text):
        yield from ((kind, value),) if kind else finder.find(value)


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
# four numbers after such a word are a version, unless they are an address of a private network
_VERSION = re.compile(r"(?:(?i:version|pkg)|[vV])[\s:=\"'(]*\Z")
_ZEROS = re.compile(r"(?:^|\.)0\d")
_SERIALS = (
    re.compile(r"(?im)^[^:\n]{0,60}?\bserial(?:[ _]?(?:number|no))?[\"']?\s*[:=]\s*[\"']?([^\s,\"'<]+)"),
    re.compile(r"(?i)<serial>([^<\s]+)</serial>"),
    re.compile(r"(?i)\[SN\][^:\n]*:\s*(\S+)"),
    re.compile(r"(?im)^[ \t]*board_id:[ \t]*(\S+)"),
)
_COLUMN = re.compile(r"(?i)\bserial\b")
_SERIAL = re.compile(r"(?=[^\d]*\d)[A-Za-z0-9][A-Za-z0-9_./-]{3,63}")
_HOSTS = (
    re.compile(r"(?m)\bNode(?:Host)?Name=([A-Za-z0-9][A-Za-z0-9_.-]*)"),
    re.compile(r"(?m)^\w{3} [ \d]\d \d\d:\d\d:\d\d ([A-Za-z0-9][A-Za-z0-9_.-]*) kernel:"),
    re.compile(r"(?m)^\d{4}-\d\d-\d\dT\S+ ([A-Za-z0-9][A-Za-z0-9_.-]*) kernel:"),
)
_USERS = re.compile(r"/(?:homes?|[Uu]sers?)/([A-Za-z_][A-Za-z0-9_.-]{0,31})")
_SHORTEST = 3
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
        if _ZEROS.search(value):
            return False
        return not _VERSION.search(text, max(0, start - 24), start) or IPv4Address(value).is_private
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
    values = {match[1] for pattern in _SERIALS for match in pattern.finditer(text)}
    head, end = _head(text)
    if head:
        columns = [name.strip().strip('"').lower() for name in head.split(",")]
        at = [n for n, name in enumerate(columns) if name == "serial" or name.endswith(("_serial", ".serial"))]
        rows = (line.split(",") for line in text[end:].splitlines())
        values |= {row[n].strip().strip('"') for row in rows for n in at if n < len(row)}
    return {value for value in values if _SERIAL.fullmatch(value) and value.upper() not in ("N/A", "0000")}


def _head(text: str) -> tuple[str, int]:
    """The first line of columns, one of which is of serial numbers, and where it ends; an empty one where none is."""
    end = 0
    while found := _COLUMN.search(text, end):
        start, end = text.rfind("\n", 0, found.start()) + 1, text.find("\n", found.end())
        end = len(text) if end < 0 else end
        if "," in text[start:end]:
            return text[start:end], end
    return "", 0


def host_names(text: str) -> set[str]:
    """Names that a scheduler or a log gives the host."""
    return {match[1] for pattern in _HOSTS for match in pattern.finditer(text)} - {"localhost"}


def user_names(text: str) -> set[str]:
    """Logins whose home folders are named."""
    return {match[1] for match in _USERS.finditer(text)} - NOBODY
