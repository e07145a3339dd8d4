"""The messages that supervisors send each other, and what silence means: authenticated, ordered, one UDP datagram."""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import socket
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Set, Tuple

from ..common.bounds import fitted
from ..common.sockets import family
from .failures import FOLLOWED

_MAGIC = b"nodectl1"
_DIGEST_BYTES = 32
# a failure's texts are cut so that a datagram stays this short; with a thousand hosts the lists alone are longer
_AIM_BYTES = 8192
_LONGEST_BYTES = 65507  # of a datagram over UDP

WAITING, RUNNING, ENDING, STOPPING = "waiting", "running", "ending", "stopping"
FINISHED, FAILED, STOPPED = "finished", "failed", "stopped"
TERMINAL = frozenset({FINISHED, FAILED, STOPPED})
# resting: nothing of this attempt runs there any more, and another may follow; spare: the host stands by for one
RESTING, SPARE = "resting", "spare"
ACTIVE = frozenset({WAITING, RUNNING, ENDING, STOPPING})  # ranks run there, or may at any moment


LEADER = 0  # the place of the host that numbers the attempts


class Attempt(NamedTuple):
    """One run of a job's ranks: its number, from 1, and its hosts in the order of their node ranks."""

    number: int
    roster: Tuple[int, ...]


class Beat(NamedTuple):
    """One heartbeat: the host's place in the plan, the beat's number, the host's state, and its first failure if any.

    `over`: the job has ended, and why no other attempt follows; `fit`: why this host cannot take part in the next
    attempt (empty: it can, None: not known yet); `suspicions`: how often it took the attempt for hung; `stood_s`: for
    how long its output has reported nothing new.
    """

    rank: int
    number: int
    state: str
    failure: Optional[Dict[str, Any]]
    attempt: Attempt = Attempt(1, ())
    over: Optional[str] = None
    fit: Optional[str] = None
    suspicions: int = 0
    stood_s: float = 0.0


def encode(secret: bytes, job_id: str, beat: Beat) -> bytes:
    """Return the datagram: magic, HMAC-SHA256, JSON; the failure's texts are cut if it would be too long."""
    most = _AIM_BYTES - len(_MAGIC) - _DIGEST_BYTES
    body = fitted(lambda cut: [job_id, *beat._replace(failure=cut(beat.failure))], most, separators=(",", ":"))
    return _MAGIC + _sign(secret, body) + body


def decode(secret: bytes, job_id: str, datagram: bytes) -> Optional[Beat]:
    """Return the beat; None for a datagram that this job's key has not signed, or of another job."""
    head = len(_MAGIC) + _DIGEST_BYTES
    if len(datagram) > _LONGEST_BYTES or not datagram.startswith(_MAGIC):
        return None
    body = datagram[head:]
    if not hmac.compare_digest(datagram[len(_MAGIC) : head], _sign(secret, body)):
        return None
    said_by, *fields = json.loads(body)
    if said_by != job_id:
        return None
    beat = Beat(*fields)
    number, roster = beat.attempt
    return beat._replace(attempt=Attempt(number, tuple(roster)))


def _sign(secret: bytes, body: bytes) -> bytes:
    return hmac.new(secret, body, hashlib.sha256).digest()


class Peers:
    """The heartbeats heard from a job's other hosts, with the times of arrival (seconds of the monotonic clock)."""

    def __init__(self, ranks: List[int], lease_s: float, born_s: float = 0.0) -> None:
        self.ranks = ranks
        self.lease_s = lease_s
        self.beats: Dict[int, Beat] = {}
        self.lost: Set[int] = set()
        self._born_s = born_s
        self._heard_s: Dict[int, float] = {}
        self._attempt: Optional[Attempt] = None
        self.failures: Dict[int, Dict[str, Any]] = {}  # the first of each host in this attempt

    def begin(self, attempt: Attempt) -> None:
        """Start an attempt: only its heartbeats count from now on, and only its hosts can be lost."""
        self._attempt = attempt
        self.lost = set()
        self.failures = {}
        for beat in self.here():
            self._note_failure(beat)

    def hear(self, beat: Beat, now_s: float) -> bool:
        """Record a beat; return False for an old one (replayed or overtaken) and for one from a stranger."""
        if beat.rank not in self.ranks or (beat.rank in self.beats and beat.number <= self.beats[beat.rank].number):
            return False
        self._heard_s[beat.rank] = now_s
        self.beats[beat.rank] = beat
        if self._attempt is None or beat.attempt == self._attempt:
            self._note_failure(beat)
        return True

    def _note_failure(self, beat: Beat) -> None:
        """Record a host's failure in this attempt; it stays recorded after that host has begun the next attempt."""
        self.failures.pop(beat.rank, None)
        if beat.failure is not None:
            self.failures[beat.rank] = beat.failure

    def _takes_part(self, rank: int) -> bool:
        return self._attempt is None or rank == LEADER or rank in self._attempt.roster

    def here(self) -> List[Beat]:
        """Return the newest beats of the other hosts that are in this attempt."""
        attempt = self._attempt
        return [beat for beat in self.beats.values() if attempt is None or beat.attempt == attempt]

    def doubts(self) -> Tuple[int, float]:
        """Return the sum of the other hosts' `suspicions`, and the least of their `stood_s`."""
        beats = self.here()
        return sum(beat.suspicions for beat in beats), min((beat.stood_s for beat in beats), default=float("inf"))

    def causes(self) -> List[int]:
        """Return the hosts that have reported a cause in this attempt, and not only a consequence."""
        return [rank for rank, item in self.failures.items() if item["kind"] not in (*FOLLOWED, "host_lost")]

    def unheard(self) -> List[int]:
        """Return the hosts of the attempt that have never been heard in it."""
        here = {beat.rank for beat in self.here()}
        return [rank for rank in self.ranks if self._takes_part(rank) and rank not in here]

    def newly_lost(self, now_s: float) -> List[int]:
        """Return the attempt's hosts whose lease has run out since the last call, without those that have ended."""
        silent = [
            rank
            for rank, heard_s in self._heard_s.items()
            if now_s - heard_s > self.lease_s
            and rank not in self.lost
            and self._takes_part(rank)
            and self.beats[rank].state not in TERMINAL
        ]
        self.lost.update(silent)
        return silent

    def pardon(self, pause_s: float) -> None:
        """Extend all leases by a pause in which this host itself could not listen."""
        self._born_s += pause_s
        for rank in self._heard_s:
            self._heard_s[rank] += pause_s

    def silent_s(self, now_s: float) -> Dict[int, float]:
        """Return for how many seconds each host has been silent."""
        return {rank: now_s - self._heard_s.get(rank, self._born_s) for rank in self.ranks}

    def any_here_in(self, *states: str) -> bool:
        """Tell whether a host of this attempt is in one of these states."""
        return any(beat.state in states for beat in self.here())

    def has_gone_on(self) -> bool:
        """Tell whether the first host has begun a later attempt than this one."""
        leader = self.beats.get(LEADER)
        return leader is not None and self._attempt is not None and leader.attempt.number > self._attempt.number

    def all_ended(self, now_s: float) -> bool:
        """Tell whether every other host that was ever heard has ended the job or is silent."""
        silent_s = self.silent_s(now_s)
        return all(beat.over is not None or silent_s[rank] > self.lease_s for rank, beat in self.beats.items())


class Mesh:
    """The socket of one host; its messages carry the job's signature."""

    def __init__(self, job_id: str, secret: bytes, hosts: List[Dict[str, str]], rank: int, port: int) -> None:
        self._job_id, self._secret = job_id, secret
        self._others = [(host["address"], port) for place, host in enumerate(hosts) if place != rank]
        self.socket = _bind(hosts[rank]["address"], port)

    def receive(self) -> Iterator[Beat]:
        """Return all beats of this job that have arrived."""
        while True:
            try:
                datagram = self.socket.recv(_LONGEST_BYTES + 1)
            except (BlockingIOError, ConnectionRefusedError):
                return
            beat = decode(self._secret, self._job_id, datagram)
            if beat is not None:
                yield beat

    def send(self, beat: Beat) -> None:
        """Send a beat to every other host; a cut link or a full queue is no error, since the lease judges silence."""
        datagram = encode(self._secret, self._job_id, beat)
        for other in self._others:
            with contextlib.suppress(OSError):
                self.socket.sendto(datagram, other)


def _bind(address: str, port: int) -> socket.socket:
    sock = socket.socket(family(address), socket.SOCK_DGRAM)
    sock.setblocking(False)
    if sock.family == socket.AF_INET:
        sock.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, 0xC0)  # precedence over bulk data in switches that look at it
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
    sock.bind((address, port))
    return sock
