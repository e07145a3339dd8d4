"""Other values of the same shape for what tells one machine from another.

A value gets one pseudonym for as long as the Pseudonyms live, and no two values of a kind get the same. A MAC address,
the GUID and the IPv6 address that are made from it keep belonging together; addresses of one subnet stay in one.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import re
import string
from collections.abc import Callable, Mapping
from typing import AnyStr

# of the 24 bits below a maker's own: 4,096 machines with 4,096 addresses each, scattered by an odd factor (one to one)
_TAILS, _SCATTER = 4096, 0x9E3779
_PUBLIC = ["198.18", "198.19", *(f"100.{second}" for second in range(64, 128))]

# no words come of them
_CONSONANTS = "bcdfghjklmnpqrstvwxz"
_HEX = re.compile(r"(?=[a-f]*[0-9])(?=[0-9]*[a-f])[0-9a-f]{5,}", re.IGNORECASE)


class Pseudonyms:
    """`key` decides them: the same key gives the same ones; machines of different numbers share no address."""

    def __init__(self, key: bytes, words: Mapping[str, str], number: int | None = None) -> None:
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
            "ipv4": self._ipv4,
            "ipv6": self._ipv6,
            "serial": self._serial,
            "name": self._name,
            "word": lambda value: words.get(value, value),
        }

    def of(self, kind: str, value: str) -> str:
        """The pseudonym of a value; the value itself where it is special (all zeros, broadcast, loopback)."""
        known = self._memo.get((kind, value))
        if known is None:
            known = self._memo[kind, value] = self._kinds[kind](value)
        return known

    def _stream(self, *parts: str | bytes) -> bytes:
        text = b"\0".join(part if isinstance(part, bytes) else part.encode() for part in parts)
        return hmac.new(self._key, text, hashlib.sha256).digest()

    def _fresh(self, kind: str, original: AnyStr, make: Callable[[bytes], AnyStr]) -> AnyStr:
        """The first of the values that `make` draws which is neither taken nor the original."""
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
        """A MAC address, an EUI-64 or InfiniBand's 20 bytes, written in pairs."""
        octets = bytes.fromhex(re.sub("[:-]", "", value))
        if len(octets) == 6:
            special = octets[0] & 1 or not any(octets)
            octets = octets if special else octets[:3] + self._tail(octets[:3], octets[3:])
        elif len(octets) in (8, 20):
            octets = octets[:-8] + self._eui64(octets[-8:])
        return _like(value, octets.hex(value[2]))

    def _tail(self, maker: bytes, tail: bytes) -> bytes:
        """The last three bytes: the maker's own three stay."""
        known = self._tails.get((maker, tail))
        if known is None and self._number is not None and len(self._tails) < _TAILS:
            place = (self._number * _TAILS + len(self._tails)) * _SCATTER
            known = self._tails[maker, tail] = (place % 2**24).to_bytes(3, "big")
        elif known is None:
            known = self._tails[maker, tail] = self._fresh(f"tail {maker.hex()}", tail, lambda drawn: drawn[:3])
        return known

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
        """A word without meaning; its case does not change it."""

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
