"""Recordings without what identifies machines and people, and copies that are other machines of the same kind."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import re
import secrets
import string
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from ipaddress import IPv4Address, IPv6Address
from typing import AnyStr

from nodectl.model.recording import SITE, Recording
from nodectl.recordings.allowed import NOBODY, Allowed, spellings

# of the 24 bits below a maker's own: 4,096 machines with 4,096 addresses each, scattered by an odd factor (one to one)
_TAILS, _SCATTER = 4096, 0x9E3779
_PUBLIC = ["198.18", "198.19", *(f"100.{second}" for second in range(64, 128))]

# no words come of them
_CONSONANTS = "bcdfghjklmnpqrstvwxz"
_HEX = re.compile(r"(?=[a-f]*[0-9])(?=[0-9]*[a-f])[0-9a-f]{5,}", re.IGNORECASE)


class Pseudonyms:
    """`key` decides them: the same key gives the same ones; machines of different numbers share no address."""

    def __init__(self, key: bytes, replacements: Mapping[str, str], number: int | None = None) -> None:
        self._key = key
        self._number = number
        self._memo: dict[tuple[str, str], str] = {}
        self._tails: dict[tuple[bytes, bytes], bytes] = {}
        self._taken: set[tuple[str, str | bytes]] = set()
        self._public: dict[str, str] = {}
        self._kinds: dict[str, Callable[[str], str]] = {
            "uuid": self._uuid,
            "pairs": self._pairs,
            "guid": self._guid,
            "hex": self._hex,
            "key": self._name,
            "ipv4": self._ipv4,
            "ipv6": self._ipv6,
            "serial": self._serial,
            "name": self._name,
            "word": lambda value: replacements.get(value, value),
        }

    def of(self, kind: str, value: str) -> str:
        """Return the pseudonym of a value; the value itself where it is special (all zeros, broadcast, loopback)."""
        pseudonym = self._memo.get((kind, value))
        if pseudonym is None:
            pseudonym = self._memo[kind, value] = self._kinds[kind](value)
        return pseudonym

    def _stream(self, *parts: str | bytes) -> bytes:
        text = b"\0".join(part if isinstance(part, bytes) else part.encode() for part in parts)
        return hmac.new(self._key, text, hashlib.sha256).digest()

    def _fresh(self, kind: str, original: AnyStr, make: Callable[[bytes], AnyStr]) -> AnyStr:
        """Return the first of the values that `make` draws which is neither taken nor the original."""
        for attempt in range(10_000):
            drawn = make(self._stream(kind, original, str(attempt)))
            if drawn != original and (kind, drawn) not in self._taken:
                self._taken.add((kind, drawn))
                return drawn
        return original  # a shape with so few values is no identity

    def _uuid(self, value: str) -> str:
        if set(value) <= set("0-"):
            return value
        digits = self._stream("uuid", value.lower()).hex()
        made = "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:32]))
        return _like(value, made)

    def _pairs(self, value: str) -> str:
        """Return a MAC address, an EUI-64 or InfiniBand's 20 bytes, written in pairs."""
        octets = bytes.fromhex(re.sub("[:-]", "", value))
        if len(octets) == 6:
            special = octets[0] & 1 or not any(octets)
            octets = octets if special else octets[:3] + self._tail(octets[:3], octets[3:])
        elif len(octets) in (8, 20):
            octets = octets[:-8] + self._eui64(octets[-8:])
        return _like(value, octets.hex(value[2]))

    def _tail(self, maker: bytes, tail: bytes) -> bytes:
        """Return the last three bytes: the maker's own three stay."""
        pseudonym = self._tails.get((maker, tail))
        if pseudonym is None and self._number is not None and len(self._tails) < _TAILS:
            place = (self._number * _TAILS + len(self._tails)) * _SCATTER
            pseudonym = self._tails[maker, tail] = (place % 2**24).to_bytes(3, "big")
        elif pseudonym is None:
            pseudonym = self._tails[maker, tail] = self._fresh(f"tail {maker.hex()}", tail, lambda drawn: drawn[:3])
        return pseudonym

    def _eui64(self, octets: bytes) -> bytes:
        # an address of memory, a subnet's prefix, a wildcard
        if not any(octets[:4]) or not any(octets[2:]) or octets == b"\xff" * 8:
            return octets
        flipped = octets[3:5] == b"\xff\xfe"
        maker = bytes([octets[0] ^ 2]) + octets[1:3] if flipped else octets[:3]
        return octets[:5] + self._tail(maker, octets[5:])

    def _guid(self, value: str) -> str:
        """Sixteen digits, with 0x before them or colons between them."""
        digits = re.sub("^0x|:", "", value)
        made = self._eui64(bytes.fromhex(digits)).hex()
        if ":" in value:
            made = ":".join(made[i : i + 4] for i in range(0, 16, 4))
        return ("0x" if value.startswith("0x") else "") + _like(value.removeprefix("0x"), made)

    def _hex(self, value: str) -> str:
        """Thirty-two digits: a GID, or a machine's id."""
        octets = bytes.fromhex(value)
        if octets[:8] == b"\xfe\x80" + bytes(6):
            return _like(value, (octets[:8] + self._eui64(octets[8:])).hex())
        return value if not any(octets) else _like(value, self._stream("hex", octets).hex()[:32])

    def _ipv4(self, value: str) -> str:
        address = ipaddress.IPv4Address(value)
        first, second, third, fourth = (int(octet) for octet in value.split("."))
        if (
            value.endswith(".0.0.0")
            or address.is_loopback
            or address.is_multicast
            or address.is_reserved
            or first == 0
            or value.startswith("255.")
        ):
            return value
        if first == 10:
            second ^= self._mask("10")
        elif value.startswith("192.168."):
            third = third if (third, fourth) == (0, 0) else third ^ self._mask("192.168")
        elif first == 172 and second & 0xF0 == 16:
            second = 16 | (second & 15) ^ (self._mask("172") & 15 or 1)
        elif value.startswith("169.254.") or (first == 100 and second & 0xC0 == 64):
            third ^= self._mask(f"{first}")
        else:
            net = f"{first}.{second}"
            home = self._public.setdefault(net, _PUBLIC[len(self._public) % len(_PUBLIC)])
            return f"{home}.{third ^ self._mask(net)}.{fourth}"
        return f"{first}.{second}.{third}.{fourth}"

    def _mask(self, net: str) -> int:
        return self._stream("net", net)[0] or 1

    def _ipv6(self, value: str) -> str:
        address = ipaddress.IPv6Address(value)
        mapped = address.ipv4_mapped
        if mapped is not None:
            made = self._ipv4(str(mapped))
            inner = ipaddress.IPv6Address(f"::ffff:{made}")
            return f"::ffff:{made}" if "." in value else _styled(value, inner)
        if address.is_loopback or address.is_unspecified or address.is_multicast:
            return value
        packed = address.packed
        upper = packed[:8] if address.is_link_local else packed[:2] + self._xored(packed[2:8], packed[:2])
        return _styled(value, ipaddress.IPv6Address(upper + self._eui64(packed[8:])))

    def _xored(self, octets: bytes, net: bytes) -> bytes:
        mask = self._stream("net6", net)
        return bytes(octet ^ drawn if octet else 0 for octet, drawn in zip(octets, mask, strict=False))

    def _serial(self, value: str) -> str:
        def make(drawn: bytes) -> str:
            return "".join(_letter(letter, drawn[i % 32]) for i, letter in enumerate(value))

        return self._fresh("serial", value, make)

    def _name(self, value: str) -> str:
        """Return a word without meaning; its case does not change it."""
        letters = "abcdef" if _HEX.fullmatch(value) else _CONSONANTS

        def make(drawn: bytes) -> str:
            octets = drawn * (len(value) // len(drawn) + 1)
            return "".join(
                letters[octet % len(letters)] if letter.isalpha() else f"{octet % 10}"
                for letter, octet in zip(value, octets, strict=False)
            )

        made = self._memo.get(("lower", value.lower())) or self._fresh("name", value.lower(), make)
        self._memo["lower", value.lower()] = made
        return "".join(new.upper() if old.isupper() else new for old, new in zip(value, made, strict=False))


def _letter(letter: str, drawn: int) -> str:
    for alphabet in (string.digits, string.ascii_uppercase, string.ascii_lowercase):
        if letter in alphabet:
            # a zero stays, so that no number gets or loses leading ones
            return letter if letter == "0" else alphabet[1 + drawn % (len(alphabet) - 1)]
    return letter


def _like(original: str, made: str) -> str:
    return made.upper() if any(letter in "ABCDEF" for letter in original) else made


def _styled(original: str, address: ipaddress.IPv6Address) -> str:
    return _like(original, address.exploded if "::" not in original and len(original) == 39 else str(address))


# Recordings without what identifies machines and people, and copies that are other machines of the same kind.

_ADDRESSES = {"ipv4", "ipv6"}
_BETWEEN = "\x1f"


# a word of what stays; the letters before a GPU's UUID are a word of their own
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

    def learn(self, recording: Recording) -> None:
        """Learn the identities and names of the recording: what is masked from now on is without them, too."""
        texts = [text for entry in recording.entries.values() for text in (entry.stdout, entry.stderr)]
        self._discover(recording.host, texts)
        self._finder = Words(self._words)
        for text in texts:
            self._allowed.learn(text)

    def masked(self, recording: Recording) -> Recording:
        """Return the recording with pseudonyms everywhere: outputs, complaints and arguments alike."""
        self.learn(recording)
        # both only grow
        if self._done_with != (len(self._words), self._allowed.size):
            self._done, self._done_with = {}, (len(self._words), self._allowed.size)
        entries = {
            self._key(key): replace(
                entry,
                key=self._key(key),
                # as one text: of a word that follows `--password`, only the word before tells
                argv=tuple(self._text(_BETWEEN.join(entry.argv)).split(_BETWEEN)) if entry.argv else (),
                stdout=self._text(entry.stdout),
                stderr=self._text(entry.stderr),
            )
            for key, entry in recording.entries.items()
        }
        name = None if recording.recorded is None else self._text(recording.recorded)
        return replace(recording, host=self.name_of(recording.host), entries=entries, recorded=name)

    def _key(self, key: str) -> str:
        """Ours say what was asked, in words that are known; those of a site, and of files, are any."""
        return SITE + self._text(key.removeprefix(SITE)) if key.startswith(SITE) else self._text(key)

    def _discover(self, host: str, texts: Iterable[str]) -> None:
        for text in texts:
            for serial in serials(text) - self._words.keys():
                self._words[serial] = self._pseudonyms.of("serial", serial)
            for name in sorted(host_names(text)):
                self._add_host(name, self._hosts[host])
            self._add_users({match[1] for match in _USERS.finditer(text)} - NOBODY)
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
        """Add a text's IP addresses; those of IPv4 as other numbers, too."""
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
        if kind == "word":
            return self._words[value]
        return self._pseudonyms.of(kind, value)


@dataclass(frozen=True, slots=True)
class Template:
    """A host's texts with gaps where its identity stands; each filling is another machine of the same kind."""

    texts: Mapping[str, tuple[Part, ...]]
    names: frozenset[str]

    @classmethod
    def of(cls, texts: Mapping[str, str], host: str = "") -> Template:
        """Return the template: serial numbers, UUIDs, GUIDs, MAC addresses and the host's names are its gaps."""
        # MT_ begins a vendor's number of the kind of board: all hosts of a kind have the same
        serial_numbers = {one for text in texts.values() for one in serials(text) if not one.startswith("MT_")}
        names = {name for text in texts.values() for name in host_names(text)} | {host}
        names = {name for name in names if len(name) > 1 and not name.isdigit()}
        finder = Words(serial_numbers | names)
        return cls({key: tuple(_gaps(text, finder, names)) for key, text in texts.items()}, frozenset(names))

    def filled(self, name: str) -> dict[str, str]:
        """Return the texts of the machine `name`: always the same ones.

        Those of `node7` and `node8` share no address.
        """
        counted = re.search(r"[0-9]{1,9}$", name)
        number = int(counted[0]) % 2**12 if counted else None
        made = Pseudonyms(hashlib.sha256(name.encode()).digest(), dict.fromkeys(self.names, name), number)
        return {
            key: "".join(made.of(kind, value) if kind else value for kind, value in parts)
            for key, parts in self.texts.items()
        }


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
  | (?P<key>   (?<![0-9A-Za-z]) [0-9A-Fa-f]{2} (?P<k>[:-])
               (?! (?:[0-9A-Fa-f]{2}(?P=k)){18} [0-9A-Fa-f]{2} (?!(?P=k)[0-9A-Fa-f]) )
               [0-9A-Fa-f]{2} (?:(?P=k)[0-9A-Fa-f]{2}){7,} )
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
_GROUPS = {"s": "pairs", "k": "key"}
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
        kind, value = _GROUPS.get(match.lastgroup or "", match.lastgroup), match.group()
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

    def __init__(self, search_words: Iterable[str]) -> None:
        self._known = frozenset(search_words)
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
        """Return the longest known word that begins with the part at `at`."""
        sizes = range(min(len(parts) - at, _LONGEST), 0, -1)
        return next((word for n in sizes if (word := "".join(parts[at : at + n])) in self._known), "")


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
    """Return the first line of columns, one of which is of serial numbers, and its end; an empty one without any."""
    end = 0
    while match := _COLUMN.search(text, end):
        start, end = text.rfind("\n", 0, match.start()) + 1, text.find("\n", match.end())
        end = len(text) if end < 0 else end
        if "," in text[start:end]:
            return text[start:end], end
    return "", 0


def host_names(text: str) -> set[str]:
    """Names that a scheduler or a log gives the host."""
    return {match[1] for pattern in _HOSTS for match in pattern.finditer(text)} - {"localhost"}
