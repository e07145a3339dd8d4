"""The processes that listen on this host's TCP ports, and a process's connections, for ranks that get no answer."""

from __future__ import annotations

import os
import re
from typing import Any, Dict, Iterator, List, Set

from ..common.patterns import lazily
from ..common.sockets import ESTABLISHED, LISTEN, kernel_rows, parsed
from .process import all_pids, read_cmdline

_CLASSES = ("rendezvous", "port_in_use")
# "port: 29871", "trying to connect to (10.1.0.1, 29500)", "10.1.0.1:29500"
_PORTS = lazily(r"\bport:? ?(\d{2,5})\b|\([\w.:\[\]-]+, (\d{2,5})\)|\d+\.\d+\.\d+\.\d+\]?:(\d{2,5})\b", re.IGNORECASE)
_COMMAND_CHARS = 120


def explain(failure: Dict[str, Any]) -> None:
    """Add to the evidence of a failed rendezvous or bind which processes listen on the ports that it names."""
    if failure.get("class") in _CLASSES:
        text = "\n".join([str(failure["message"]), *failure.get("evidence", ())])
        ports = {int(port) for match in _PORTS.findall(text) for port in match if port}
        failure["evidence"] = [*failure.get("evidence", ()), *map(words_of, sorted(ports & set(ports_here())))]


def words_of(port: int) -> str:
    """Return `TCP port 29500 of this host is process 77's: python3 serve.py`."""
    pids = ports_here().get(port, [])
    holders = [f"process {pid}'s: {' '.join(read_cmdline(pid))[:_COMMAND_CHARS]}" for pid in pids]
    return f"TCP port {port} of this host is {' and '.join(holders) or 'held by a process that this login may not see'}"


def ports_here() -> Dict[int, List[int]]:
    """Return the processes that listen on each TCP port of this host, as far as this login sees them."""
    sockets = {row[9]: parsed(row[1])[1] for row in _rows(LISTEN)}
    listeners: Dict[int, List[int]] = {port: [] for port in sockets.values()}
    for pid in all_pids() if sockets else ():
        for inode in _sockets(pid) & set(sockets):
            listeners[sockets[inode]].append(pid)
    return listeners


def connected(pid: int) -> List[str]:
    """Return the addresses and ports (`10.1.0.1:29500`) to which a process is connected."""
    inodes = _sockets(pid)
    return sorted({_place(row[2]) for row in _rows(ESTABLISHED) if row[9] in inodes})


def _rows(state: str) -> Iterator[List[str]]:
    return (row for row in kernel_rows() if len(row) > 9 and row[3] == state)


def _sockets(pid: int) -> Set[str]:
    """Return the inodes of a process's sockets; empty if it has gone or belongs to another login."""
    inodes = set()
    try:
        for name in os.listdir(f"/proc/{pid}/fd"):
            target = os.readlink(f"/proc/{pid}/fd/{name}")
            if target.startswith("socket:["):
                inodes.add(target[len("socket:[") : -1])
    except OSError:
        return inodes
    return inodes


def _place(entry: str) -> str:
    address, port = parsed(entry)
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
