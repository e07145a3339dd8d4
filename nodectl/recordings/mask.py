"""Recordings without what identifies machines and people, and copies that are other machines of the same kind."""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import string
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from ipaddress import IPv4Address, IPv4Network, IPv6Address

from nodectl.common.private import without_keys_and_tokens
from nodectl.model.recording import Recording
from nodectl.payload.common.secret_words import without_secrets

# of the 24 bits below a maker's own: 4,096 machines with 4,096 addresses each, scattered by an odd factor (one to one)
_TAILS, _SCATTER = 4096, 0x9E3779
# which bits of an address change: whole networks move, so that neighbours stay neighbours
_NETS = {
    IPv4Network("10.0.0.0/8"): 0xFF0000,
    IPv4Network("172.16.0.0/12"): 0xF0000,
    IPv4Network("192.168.0.0/16"): 0xFF00,
    IPv4Network("169.254.0.0/16"): 0xFF00,
    IPv4Network("100.64.0.0/10"): 0xFF00,
}
# where all other addresses move to
_PUBLIC = IPv4Network("198.18.0.0/15")
# how the second half of a GID begins that is an IPv4 address
_MAPPED = b"\0\0\xff\xff"


class Pseudonyms:
    """`key` decides them: the same key gives the same ones; machines of different numbers share no address."""

    def __init__(self, key: bytes, number: int = 0) -> None:
        self._key = key
        self._number = number
        self._memo: dict[tuple[str, str], str] = {}
        self._tails: dict[bytes, bytes] = {}

    def of(self, kind: str, value: str) -> str:
        """Return the pseudonym of a value; the value itself if it is special (all zeros, broadcast, loopback)."""
        made = self._memo.get((kind, value))
        if made is None:
            made = self._memo[kind, value] = self._made(kind, value)
        return made

    def _made(self, kind: str, value: str) -> str:
        if kind == "serial":
            return self._serial(value)
        if kind == "ipv4":
            return str(self._ipv4(IPv4Address(value)))
        if kind == "ipv6":
            return self._ipv6(value)
        digits = value.removeprefix("0x")
        made = iter(self._octets(bytes.fromhex(re.sub("[:-]", "", digits))).hex())
        spelled = "".join(next(made) if letter in string.hexdigits else letter for letter in digits)
        return value[: -len(digits)] + _like(digits, spelled)

    def _drawn(self, *parts: str | bytes) -> bytes:
        text = b"\0".join(part if isinstance(part, bytes) else part.encode() for part in parts)
        return hmac.new(self._key, text, hashlib.sha256).digest()

    def _octets(self, octets: bytes) -> bytes:
        """Replace a MAC address (6), a GUID (8), a UUID or GID (16), or an InfiniBand hardware address (20)."""
        if len(octets) == 6:
            return octets if octets[0] & 1 or not any(octets) else self._tailed(octets)
        if len(octets) == 16 and octets[:8] not in (b"\xfe\x80" + bytes(6), bytes(8)):
            return self._drawn("octets", octets)[:16]
        return octets[:-8] + self._eui64(octets[-8:])

    def _eui64(self, octets: bytes) -> bytes:
        if octets.startswith(_MAPPED):
            return _MAPPED + self._ipv4(IPv4Address(octets[4:])).packed
        # an address of memory, a subnet's prefix, a wildcard
        is_special = not any(octets[:4]) or not any(octets[2:]) or octets == b"\xff" * 8
        return octets if is_special else self._tailed(octets)

    def _tailed(self, octets: bytes) -> bytes:
        """Return the octets with other last three: a network card's MAC address, GUID and GID keep the same ones."""
        tail = octets[-3:]
        place = (self._number * _TAILS + len(self._tails) + 1) * _SCATTER
        return octets[:-3] + self._tails.setdefault(tail, (place % 2**24).to_bytes(3, "big"))

    def _ipv4(self, address: IPv4Address) -> IPv4Address:
        is_net = str(address).endswith(".0.0.0") or any(address == net.network_address for net in _NETS)
        if is_net or address.is_loopback or address.is_multicast or address.is_reserved or int(address) < 2**24:
            return address
        bits = next((bits for net, bits in _NETS.items() if address in net), 0)
        if not bits:
            bits = 0xFF00
            address = _PUBLIC[int(address) & int(_PUBLIC.hostmask)]
        moved = int.from_bytes(self._drawn("ipv4", f"{bits}")[:4], "big") & bits
        return IPv4Address(int(address) ^ (moved or bits))

    def _ipv6(self, value: str) -> str:
        address = IPv6Address(value)
        if (mapped := address.ipv4_mapped) is not None:
            inner = f"::ffff:{self._ipv4(mapped)}"
            return inner if "." in value else _styled(value, IPv6Address(inner))
        if address.is_loopback or address.is_unspecified or address.is_multicast:
            return value
        packed = address.packed
        # zeros stay, so that a short spelling stays short
        moved = bytes(octet and octet ^ drawn for octet, drawn in zip(packed[2:8], self._drawn("ipv6"), strict=False))
        upper = packed[:8] if address.is_link_local else packed[:2] + moved
        return _styled(value, IPv6Address(upper + self._eui64(packed[8:])))

    def _serial(self, value: str) -> str:
        drawn = (self._drawn("serial", value, f"{attempt}") for attempt in range(99))
        made = ("".join(_letter(old, new) for old, new in zip(value, each * 2, strict=False)) for each in drawn)
        return next((each for each in made if each != value), value)


def _letter(letter: str, drawn: int) -> str:
    for alphabet in (string.digits, string.ascii_uppercase, string.ascii_lowercase):
        if letter in alphabet:
            # a zero stays, so that no number gets or loses leading ones
            return letter if letter == "0" else alphabet[1 + drawn % (len(alphabet) - 1)]
    return letter


def _like(original: str, made: str) -> str:
    return made.upper() if any(letter in "ABCDEF" for letter in original) else made


def _styled(original: str, address: IPv6Address) -> str:
    return _like(original, address.exploded if "::" not in original and len(original) == 39 else str(address))


# names of no person and of no host: the words stand in outputs for other things
_NOBODY = frozenset(
    (
        *("root", "nobody", "ubuntu", "debian", "rocky", "centos", "fedora", "rhel", "almalinux", "linux", "localhost"),
        *("admin", "user", "users", "guest", "core", "nvidia", "cuda", "gpu", "slurm", "munge", "systemd", "daemon"),
        *("data", "datasets", "scratch", "shared", "share", "common", "public", "projects", "work", "home", "local"),
    )
)
_LOGIN = r"([A-Za-z_][\w.-]{0,31})(?![\w+$-])"
_HOME = re.compile(rf"(/(?:homes?|[Uu]sers?)/){_LOGIN}(?:/([^\s\"'`,:;<>|()\[\]{{}}\\]*))?")
_USERS = (
    re.compile(rf"(?m)^{_LOGIN}:[^:\s]*:\d+:\d+:"),
    re.compile(rf"(?:\b(?i:user(?:name)?|login|logname|acct|owner)=[\"']?|\b[ug]id=\d+\(){_LOGIN}"),
)
# a shorter login stands for too much else outside of a path
_SHORTEST = 3
_HOSTS = (
    re.compile(r"\bNode(?:Host)?Name=([A-Za-z0-9][\w.-]*)"),
    re.compile(r"(?m)^(?:\w{3} [ \d]\d \d\d:\d\d:\d\d|\d{4}-\d\d-\d\dT\S+) ([A-Za-z0-9][\w.-]*) kernel:"),
    re.compile(r"(?m)^Linux ([A-Za-z][\w.-]*) \d+\.\d"),
    re.compile(r"(?i)\bhostname(?:\t|[:=][ \t]*| set to )[<\"']?([a-z0-9][\w.-]*)"),
)
# in the file of hosts, and before a network file system's folder
_PEERS = (
    re.compile(r"(?m)^(?:/etc/hosts\t)?(?!127\.|::1|f[ef]0)[0-9a-f]+[.:][0-9a-f.:]+((?:[ \t]+[A-Za-z0-9][\w.-]*)+)"),
    re.compile(r"(?m)^([A-Za-z][\w.-]*):/"),
    re.compile(r"(?m)^//([A-Za-z][\w.-]*)/"),
)
_DOMAIN = re.compile(r"\b([\w-]+)\.([a-z][\w-]*(?:\.[a-z][\w-]*)+)")
_SPEAKING = re.compile(r"(?=.*[A-Za-z])(?=.*[0-9.-]).{2,}")


class Masker:
    """Pseudonyms for all hosts of a recording together."""

    def __init__(self, hosts: Sequence[str], users: Iterable[str] = ()) -> None:
        width = max(2, len(str(len(hosts))))
        self._hosts = {host: f"host{number:0{width}d}" for number, host in enumerate(hosts, 1)}
        self._words = Words()
        self._peers: dict[str, str] = {}
        self._users: dict[str, str] = {}
        self._paths: dict[str, str] = {}
        self._pseudonyms = Pseudonyms(secrets.token_bytes(32))
        for host, pseudonym in self._hosts.items():
            self._add_host(host, pseudonym)
        for user in sorted(users):
            self._user(user)

    def name_of(self, host: str) -> str:
        """Return what a host is called in the masked recording."""
        return self._hosts[host]

    def learn(self, recording: Recording) -> None:
        """Learn the names and serial numbers of the recording: they go from those of all hosts."""
        for text in (text for entry in recording.entries.values() for text in (entry.stdout, entry.stderr)):
            for serial in serials(text):
                self._words.add(serial, self._pseudonyms.of("serial", serial))
            for name in sorted(host_names(text)):
                self._add_host(name, self._hosts[recording.host])
            for name in sorted(_found(_PEERS, text)):
                if _SPEAKING.fullmatch(name) and name not in self._words.known:
                    self._add_host(name, _numbered(self._peers, name.partition(".")[0], "peer"))
            for short, domain in _DOMAIN.findall(text):
                if short in self._words.known:
                    self._words.add(domain, "example")
            for name in sorted(_found(_USERS, text) | {match[2] for match in _HOME.finditer(text)}):
                self._user(name)

    def masked(self, recording: Recording) -> Recording:
        """Return the recording with pseudonyms everywhere: outputs, complaints and arguments alike."""
        entries = {
            self._text(key): replace(
                entry,
                key=self._text(key),
                argv=tuple(map(self._text, entry.argv)),
                stdout=self._text(entry.stdout),
                stderr=self._text(entry.stderr),
            )
            for key, entry in recording.entries.items()
        }
        name = None if recording.recorded is None else self._text(recording.recorded)
        return replace(recording, host=self.name_of(recording.host), entries=entries, recorded=name)

    def _add_host(self, name: str, pseudonym: str) -> None:
        short, _, domain = name.partition(".")
        if len(short) < 2 or short.isdigit():  # a digit or a letter stands for too much else; addresses have a shape
            return
        self._words.add(name, pseudonym)
        if domain:
            self._words.add(short, pseudonym)
            self._words.add(domain, "example")

    def _user(self, name: str) -> str:
        if name in _NOBODY:
            return name
        pseudonym = _numbered(self._users, name, "user")
        if len(name) >= _SHORTEST:
            self._words.add(name, pseudonym)
        return pseudonym

    def _text(self, text: str) -> str:
        text = _HOME.sub(self._home, without_secrets(without_keys_and_tokens(text)))
        return "".join(
            self._words.known[value] if kind == "word" else self._pseudonyms.of(kind, value) if kind else value
            for kind, value in _parts(text, self._words)
        )

    def _home(self, match: re.Match[str]) -> str:
        below = match[3] and "/" + _numbered(self._paths, match[3], "path")
        return match[1] + self._user(match[2]) + (below or match[0][match.end(2) - match.start() :])


def _numbered(known: dict[str, str], name: str, kind: str) -> str:
    return known.setdefault(name, f"{kind}{len(known) + 1}")


def _found(patterns: Iterable[re.Pattern[str]], text: str) -> set[str]:
    return {name for pattern in patterns for match in pattern.finditer(text) for name in match[1].split()} - _NOBODY


@dataclass(frozen=True, slots=True)
class Template:
    """A host's texts with gaps where its identity stands; each filling is another machine of the same kind."""

    texts: Mapping[str, tuple[Part, ...]]

    @classmethod
    def of(cls, texts: Mapping[str, str], host: str = "") -> Template:
        """Return the template: serial numbers, UUIDs, GUIDs, MAC addresses and the host's names are its gaps."""
        words, names = Words(), {name for text in texts.values() for name in host_names(text)} | {host}
        for serial in {one for text in texts.values() for one in serials(text)}:
            words.add(serial, "serial")
        for name in names:
            if len(name) > 1 and not name.isdigit():
                words.add(name, "name")
        return cls({key: tuple(_gaps(text, words)) for key, text in texts.items()})

    def filled(self, name: str) -> dict[str, str]:
        """Return the texts of the machine `name`, always the same; `node7` and `node8` share no address."""
        key = hashlib.sha256(name.encode()).digest()
        counted = re.search(r"[0-9]{1,9}$", name)
        made = Pseudonyms(key, int(counted[0] if counted else key[:4].hex(), 10 if counted else 16) % _TAILS)
        return {
            key: "".join(name if kind == "name" else made.of(kind, value) if kind else value for kind, value in parts)
            for key, parts in self.texts.items()
        }


def _gaps(text: str, words: Words) -> Iterator[Part]:
    for kind, value in _parts(text, words):
        known = words.known[value] if kind == "word" else kind
        yield "" if known in ("ipv4", "ipv6") else known, value


def _parts(text: str, words: Words) -> Iterator[Part]:
    """(kind, value) of shapes and known words, in their order; kind is empty for what stands between."""
    for kind, value in shapes(text):
        yield from ((kind, value),) if kind else words.find(value)


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
    re.compile(r"(?i)\bserial(?:[ _-]?(?:number|num|no))?\.?[\"']?\s*[:=]\s*[\"']?([^\s,\"'<]+)"),
    re.compile(r"(?i)<serial>([^<\s]+)</serial>"),
    re.compile(r"(?i)\[SN\][^:\n]*:\s*(\S+)"),
    re.compile(r"\b(?:S/N|SN|(?i:asset tag|serial number))\b[ \t]*[:=#]?[ \t]*([^\s,\"'<]+)"),
)
_COLUMN = re.compile(r"(?i)\bserial\b")
_SERIAL = re.compile(r"(?=[^\d]*\d)[A-Za-z0-9](?:[-./]?[A-Za-z0-9_]){3,63}")
_TOKEN = re.compile(r"[A-Za-z0-9_]+(?:[-./][A-Za-z0-9_]+)*")
_PARTS = re.compile(r"([-._/])")
_LONGEST = 12

Part = tuple[str, str]


def shapes(text: str) -> Iterator[Part]:
    """(kind, value) in their order; kind is empty for what stands between."""
    position = 0
    for match in _SHAPES.finditer(text):
        kind, value = match.lastgroup or "", match.group()
        if not _is(kind, value, text, match.start()):
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
    """Known words and what stands for each, found whole or between dashes, dots and underscores; the longest wins."""

    def __init__(self) -> None:
        self.known: dict[str, str] = {}
        self._firsts: set[str] = set()

    def add(self, word: str, meaning: str) -> None:
        """Add a word, unless it has a meaning already."""
        self.known.setdefault(word, meaning)
        self._firsts.add(_PARTS.split(word, maxsplit=1)[0])

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
        sizes = range(min(len(parts) - at, _LONGEST), 0, -1)
        return next((word for n in sizes if (word := "".join(parts[at : at + n])) in self.known), "")


def serials(text: str) -> set[str]:
    """Return serial numbers, by the label or the column that they stand under; board numbers, too."""
    values = {match[1] for pattern in _SERIALS for match in pattern.finditer(text)}
    head, end = _head(text)
    if head:
        columns = [name.strip().strip('"').lower() for name in head.split(",")]
        at = [n for n, name in enumerate(columns) if name == "serial" or name.endswith(("_serial", ".serial"))]
        rows = (line.split(",") for line in text[end:].splitlines())
        values |= {row[n].strip().strip('"') for row in rows for n in at if n < len(row)}
    return {value for value in values if _SERIAL.fullmatch(value) and value.upper() not in ("N/A", "0000")}


def _head(text: str) -> tuple[str, int]:
    end = 0
    while match := _COLUMN.search(text, end):
        start, end = text.rfind("\n", 0, match.start()) + 1, text.find("\n", match.end())
        end = len(text) if end < 0 else end
        if "," in text[start:end]:
            return text[start:end], end
    return "", 0


def host_names(text: str) -> set[str]:
    """Names that the system, a scheduler or a log gives the host."""
    return {name for name in _found(_HOSTS, text) if _SPEAKING.fullmatch(name)}
