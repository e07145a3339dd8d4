"""Over which network interfaces this process is really connected to others, from its own sockets."""

import os
import stat
from pathlib import Path
from typing import Any, Dict, Iterator, Set, Tuple

from ...common.sockets import ESTABLISHED, kernel_rows, parsed
from ..endpoints import addresses


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
