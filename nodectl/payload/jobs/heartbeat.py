"""The messages that supervisors send each other, and what silence means: authenticated, ordered, one UDP datagram."""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import socket
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Set

from ..common.addresses import family

_MAGIC = b"nodectl1"
_DIGEST_BYTES = 32
_LONGEST_BYTES = 8192
_BUFFER_BYTES = 16384

WAITING, RUNNING, ENDING, STOPPING = "waiting", "running", "ending", "stopping"
FINISHED, FAILED, STOPPED = "finished", "failed", "stopped"
TERMINAL = frozenset({FINISHED, FAILED, STOPPED})


class Beat(NamedTuple):
    """One heartbeat: who (rank of the host), the how-manyth, its state, and its first failure where it has one."""

    rank: int
    number: int
    state: str
    failure: Optional[Dict[str, Any]]


def encode(secret: bytes, job_id: str, beat: Beat) -> bytes:
    """The datagram: magic, HMAC-SHA256, JSON."""
    body = json.dumps({"j": job_id, "r": beat.rank, "n": beat.number, "s": beat.state, "f": beat.failure}).encode()
    return _MAGIC + _sign(secret, body) + body


def decode(secret: bytes, job_id: str, datagram: bytes) -> Optional[Beat]:
    """The beat; None for anything that this job's key has not signed, or that is another job's."""
    head = len(_MAGIC) + _DIGEST_BYTES
    if len(datagram) > _LONGEST_BYTES or not datagram.startswith(_MAGIC):
        return None
    body = datagram[head:]
    if not hmac.compare_digest(datagram[len(_MAGIC) : head], _sign(secret, body)):
        return None
    document = json.loads(body)
    if document["j"] != job_id:
        return None
    return Beat(int(document["r"]), int(document["n"]), str(document["s"]), document["f"])


def _sign(secret: bytes, body: bytes) -> bytes:
    return hmac.new(secret, body, hashlib.sha256).digest()


class Peers:
    """What was heard from the other hosts of a job, by the given clock (seconds, monotonic)."""

    def __init__(self, ranks: List[int], lease_s: float) -> None:
        self.ranks = ranks
        self.lease_s = lease_s
        self.states: Dict[int, str] = {}
        self.failures: Dict[int, Dict[str, Any]] = {}
        self.lost: Set[int] = set()
        self._heard_s: Dict[int, float] = {}
        self._numbers: Dict[int, int] = {}

    def hear(self, beat: Beat, now_s: float) -> bool:
        """Take a beat in; False for an old one (a replay, or one that was overtaken) and for a stranger."""
        if beat.rank not in self.ranks or beat.number <= self._numbers.get(beat.rank, 0):
            return False
        self._numbers[beat.rank] = beat.number
        self._heard_s[beat.rank] = now_s
        self.states[beat.rank] = beat.state
        if beat.failure is not None:
            self.failures[beat.rank] = beat.failure
        return True

    def unheard(self) -> List[int]:
        """Hosts that have never been heard."""
        return [rank for rank in self.ranks if rank not in self._heard_s]

    def newly_lost(self, now_s: float) -> List[int]:
        """Hosts whose lease ran out since the last call: silent, and not known to have ended."""
        silent = [
            rank
            for rank, heard_s in self._heard_s.items()
            if now_s - heard_s > self.lease_s and rank not in self.lost and self.states[rank] not in TERMINAL
        ]
        self.lost.update(silent)
        return silent

    def pardon(self, pause_s: float) -> None:
        """Nobody could be heard for this long, by the fault of who listens."""
        for rank in self._heard_s:
            self._heard_s[rank] += pause_s

    def any_in(self, *states: str) -> bool:
        """At least one host said that it is in one of these states."""
        return any(state in states for state in self.states.values())

    def all_ended(self) -> bool:
        """Every other host has ended, is lost, or has never been heard."""
        return all(self.states.get(rank) in TERMINAL or rank in self.lost for rank in self._heard_s)


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
                datagram = self.socket.recv(_BUFFER_BYTES)
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
    sock = socket.socket(family(address), socket.SOCK_DGRAM)
    sock.setblocking(False)
    if sock.family == socket.AF_INET:
        sock.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, 0xC0)  # before bulk data in a queue that looks
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
    sock.bind((address, port))
    return sock
