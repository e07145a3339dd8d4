"""Over which network interfaces this process is really connected to others, from its own sockets."""

import os
import socket
import stat
import struct
from pathlib import Path
from typing import Any, Dict, Iterator, Set, Tuple

from ...common.sockets import ESTABLISHED, kernel_rows
from ..endpoints import addresses

_MAPPED = "::ffff:"


def used(but_port: int) -> Dict[str, Any]:
    """Connections by interface and the addresses at their other ends; `but_port` is of the meeting, not of data."""
    names = {address: name for name, address in addresses()}
    interfaces: Dict[str, int] = {}
    peers: Set[str] = set()
    for local, peer in connections(own_inodes(), but_port):
        # a link-local address of IPv6 is not among the listed ones
        name = names.get(local, "lo" if local.startswith("127.") or local == "::1" else "?")
        interfaces[name] = interfaces.get(name, 0) + 1
        peers.add(peer)
    return {"interfaces": interfaces, "peers": sorted(peers)}


def own_inodes() -> Set[str]:
    """The inodes of this process's sockets."""
    inodes = set()
    for entry in Path("/proc/self/fd").iterdir():
        try:
            status = os.fstat(int(entry.name))
        except OSError:
            continue
        if stat.S_ISSOCK(status.st_mode):
            inodes.add(str(status.st_ino))
    return inodes


def connections(inodes: Set[str], but_port: int) -> Iterator[Tuple[str, str]]:
    """(own address, other's address) of established connections."""
    for row in kernel_rows():
        if len(row) < 10 or row[3] != ESTABLISHED or row[9] not in inodes:
            continue
        (local, own_port), (peer, their_port) = parsed(row[1]), parsed(row[2])
        if but_port not in (own_port, their_port):
            yield local, peer


def parsed(entry: str) -> Tuple[str, int]:
    """`0100007F:1F90` → 127.0.0.1 and 8080; the kernel writes words of 32 bit in its own byte order."""
    words, _, port = entry.partition(":")
    raw = b"".join(struct.pack("=I", int(words[at : at + 8], 16)) for at in range(0, len(words), 8))
    address = socket.inet_ntop(socket.AF_INET if len(raw) == 4 else socket.AF_INET6, raw)
    if address.startswith(_MAPPED) and "." in address:
        address = address[len(_MAPPED) :]
    return address, int(port, 16)
