# SPDX-License-Identifier: Apache-2.0
"""OpenPGP public keys as apt and rpm want them: armour off or on, each with its fingerprint (RFC 4880, no program)."""

from __future__ import annotations

import base64
import binascii
import hashlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # nodes run this from Python 3.8 on
    from collections.abc import Iterator

    Key = tuple[str, bytes]

ARMOUR = b"-----BEGIN PGP PUBLIC KEY BLOCK-----"
END = b"-----END PGP PUBLIC KEY BLOCK-----"
PUBLIC_KEY = 6


class BadKeyError(ValueError):
    """The bytes are no public keys."""


def dearmor(data: bytes) -> bytes:
    """Return the binary form; what is binary already stays as it is."""
    text = data.strip()
    if not text.startswith(ARMOUR):
        return data
    body = text[len(ARMOUR) :].partition(END)[0].replace(b"\r", b"")
    # headers such as `Comment:` end with an empty line
    _unused, blank, rest = body.lstrip(b"\n").partition(b"\n\n") if b": " in body else (b"", b"x", body)
    lines = [line.strip() for line in rest.split(b"\n") if line.strip()]
    if not blank or not lines:
        raise BadKeyError("an armoured key without a body")
    checksum = lines.pop()[1:] if lines[-1].startswith(b"=") else b""
    try:
        raw = base64.b64decode(b"".join(lines), validate=True)
        wanted = base64.b64decode(checksum, validate=True)
    except binascii.Error as error:
        raise BadKeyError(f"an armoured key that is no base64: {error}") from None
    if wanted and crc24(raw) != int.from_bytes(wanted, "big"):
        raise BadKeyError("an armoured key whose checksum does not fit: it was cut or changed")
    return raw


def armored(data: bytes) -> bytes:
    """Return the text form, as rpm wants it; what is text already stays as it is."""
    if data.strip().startswith(ARMOUR):
        return data
    text = base64.b64encode(data)
    lines = [text[start : start + 64] for start in range(0, len(text), 64)]
    checksum = b"=" + base64.b64encode(crc24(data).to_bytes(3, "big"))
    return b"\n".join([ARMOUR, b"", *lines, checksum, END]) + b"\n"


def crc24(data: bytes) -> int:
    """Return the checksum of an armour."""
    crc = 0xB704CE
    for byte in data:
        crc ^= byte << 16
        for _unused in range(8):
            crc <<= 1
            if crc & 0x1000000:
                crc ^= 0x1864CFB
    return crc & 0xFFFFFF


def packets(data: bytes) -> Iterator[tuple[int, bytes, bytes]]:
    """(tag, body, the whole packet) of each packet."""
    start = 0
    while start < len(data):
        tag, header, length = _header(data, start)
        end = start + header + length
        if end > len(data):
            raise BadKeyError("a packet longer than its file: the key was cut")
        yield tag, data[start + header : end], data[start:end]
        start = end


def _header(data: bytes, start: int) -> tuple[int, int, int]:
    """(tag, length of the header, length of the body) of the packet that begins here."""
    first, left = data[start], data[start + 1 : start + 6]
    if not first & 0x80 or len(left) < 1:
        raise BadKeyError(f"no OpenPGP packet at byte {start}")
    if not first & 0x40:  # the old form
        size = {0: 1, 1: 2, 2: 4}.get(first & 3)
        if size is None:
            raise BadKeyError(f"a packet without a length at byte {start}")
        return (first >> 2) & 15, 1 + size, int.from_bytes(left[:size], "big")
    tag, one = first & 63, left[0]
    if one < 192:
        return tag, 2, one
    if one < 224:
        return tag, 3, ((one - 192) << 8) + left[1] + 192
    if one == 255:
        return tag, 6, int.from_bytes(left[1:5], "big")
    raise BadKeyError(f"a packet of partial lengths at byte {start}")


def keys(data: bytes) -> list[Key]:
    """(fingerprint, its bytes) of each primary key, with whatever follows it: names, signatures, subkeys."""
    primary: list[Key] = []
    for tag, body, whole in packets(dearmor(data)):
        if tag == PUBLIC_KEY:
            primary.append((fingerprint(body), whole))
        elif primary:
            name, before = primary[-1]
            primary[-1] = (name, before + whole)
        else:
            raise BadKeyError(f"a packet of kind {tag} before any public key")
    return primary


def fingerprint(body: bytes) -> str:
    """Return the fingerprint of a version 4 key, as `gpg` prints it without spaces."""
    if not body or body[0] != 4:
        raise BadKeyError(f"a key of version {body[0] if body else 'none'}, where apt's repositories use 4")
    return hashlib.sha1(b"\x99" + len(body).to_bytes(2, "big") + body).hexdigest().upper()  # noqa: S324  the format says so
