"""How heartbeats travel: one UDP socket on the chosen address, from every host of a job to every other."""

from __future__ import annotations

import contextlib
import socket
from typing import Dict, Iterator, List

from .heartbeat import Beat, decode, encode

_LARGEST_BYTES = 16384


class Mesh:
    """The socket of one host; its messages carry the job's signature."""

    def __init__(self, job_id: str, secret: bytes, hosts: List[Dict[str, str]], rank: int, port: int) -> None:
        self._job_id, self._secret = job_id, secret
        self._others = [(host["address"], port) for place, host in enumerate(hosts) if place != rank]
        self.socket = _bind(hosts[rank]["address"], port)

    def receive(self) -> Iterator[Beat]:
        """All beats of this job that have arrived."""
        while True:
            try:
                datagram = self.socket.recv(_LARGEST_BYTES)
            except (BlockingIOError, ConnectionRefusedError):
                return
            beat = decode(self._secret, self._job_id, datagram)
            if beat is not None:
                yield beat

    def send(self, beat: Beat) -> None:
        """To every other host; a cut link or a full queue is no error: silence is judged by the lease."""
        datagram = encode(self._secret, self._job_id, beat)
        for other in self._others:
            with contextlib.suppress(OSError):
                self.socket.sendto(datagram, other)


def _bind(address: str, port: int) -> socket.socket:
    """The UDP socket for heartbeats, on the chosen address alone."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_DGRAM)
    sock.setblocking(False)
    if family == socket.AF_INET:
        sock.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, 0xC0)  # before bulk data in a queue that looks
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
    sock.bind((address, port))
    return sock
