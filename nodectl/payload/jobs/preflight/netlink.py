"""The kernel's own list of links and addresses, by netlink: no `ip` needed, and right in a network namespace,
where /sys may still show another's devices."""

from __future__ import annotations

import socket
import struct
from typing import Dict, Iterator, List, NamedTuple, Tuple

_GETLINK, _GETADDR, _DONE, _ERROR = 18, 22, 3, 2
_REQUEST_DUMP = 0x301
_UP = 1
_IFLA_IFNAME, _IFLA_MTU, _IFLA_OPERSTATE = 3, 4, 16
_OPERSTATE_NAMES = ("unknown", "notpresent", "down", "lowerlayerdown", "testing", "dormant", "up")
_IFA_ADDRESS, _IFA_LOCAL = 1, 2
_HEADER = struct.Struct("=IHHII")


class Interface(NamedTuple):
    """An interface; `addresses` in CIDR form, as the kernel lists them."""

    name: str
    up: bool
    state: str
    mtu: int
    addresses: List[str]


def interfaces() -> List[Interface]:
    """Every interface of this network namespace."""
    links: Dict[int, Interface] = {}
    for body in _dump(_GETLINK):
        _, _, index, flags, _ = struct.unpack_from("=BxHiII", body)
        fields = dict(_attributes(body[16:]))
        state = fields.get(_IFLA_OPERSTATE, b"\0")[0]
        name = fields[_IFLA_IFNAME].rstrip(b"\0").decode(errors="replace")
        mtu = struct.unpack("=I", fields[_IFLA_MTU])[0]
        links[index] = Interface(name, bool(flags & _UP), _OPERSTATE_NAMES[min(state, 6)], mtu, [])
    for body in _dump(_GETADDR):
        family, prefix, _, _, index = struct.unpack_from("=BBBBI", body)
        fields = dict(_attributes(body[8:]))
        raw = fields.get(_IFA_LOCAL) or fields.get(_IFA_ADDRESS)
        if raw and index in links and family in (socket.AF_INET, socket.AF_INET6):
            links[index].addresses.append(f"{socket.inet_ntop(family, raw)}/{prefix}")
    return list(links.values())


def _dump(kind: int) -> Iterator[bytes]:
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as kernel:
        kernel.settimeout(5)
        kernel.bind((0, 0))
        kernel.send(_HEADER.pack(_HEADER.size + 16, kind, _REQUEST_DUMP, 1, 0) + b"\0" * 16)
        while True:
            for message, body in _messages(kernel.recv(1 << 17)):
                if message == _DONE:
                    return
                if message == _ERROR:
                    raise OSError(-struct.unpack_from("=i", body)[0], "netlink refused the request")
                yield body


def _messages(data: bytes) -> Iterator[Tuple[int, bytes]]:
    at = 0
    while at + _HEADER.size <= len(data):
        size, kind = struct.unpack_from("=IH", data, at)
        yield kind, data[at + _HEADER.size : at + size]
        at += (size + 3) & ~3


def _attributes(data: bytes) -> Iterator[Tuple[int, bytes]]:
    at = 0
    while at + 4 <= len(data):
        size, kind = struct.unpack_from("=HH", data, at)
        if size < 4:
            return
        yield kind & 0x3FFF, data[at + 4 : at + size]
        at += (size + 3) & ~3
