"""What a host keeps of a job from its first attempt to its last: the others, its own voice, what was."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from typing import Any, Dict, List, Optional, Union

from . import heartbeat as hb
from . import steady
from .attempts import Over, Rules, Succession, plan_of
from .folder import JobFolder, boot_id, payload_folder
from .heartbeat import Attempt, Beat
from .node_end import Leaving
from .process import read_stat

_MOST_RECORDED = 100


class Member:
    """Opened once a job; `attempt` is the one under way here, `history` tells of those before it."""

    def __init__(self, job: JobFolder) -> None:
        self.job = job
        self.plan = job.plan()
        self.rank: int = self.plan["rank"]
        self.hosts: List[Dict[str, str]] = self.plan["hosts"]
        rules = Rules.of(self.plan)
        checkpoint = self.plan["checkpoint"] or {}
        self.attempt = Attempt(1, rules.first, checkpoint.get("restore_from"))
        self.succession = Succession(rules)
        self.stop_asked = False
        self.terminated = False
        self.leaving: Optional[Leaving] = None
        self.history: List[Dict[str, Any]] = []
        self.born_s = time.monotonic()
        others = [rank for rank in range(len(self.hosts)) if rank != self.rank]
        self.peers = hb.Peers(others, rules.lease_s, self.born_s)
        self.peers.begin(self.attempt)
        self.identity = {**_identity(), "rank": self.rank}
        self.ways = steady.OneWay()
        self._beat_number = 0

    def open(self) -> None:
        """Take the port; OSError where it is taken."""
        port = int(self.plan["heartbeat_port"])
        self.mesh = hb.Mesh(self.job.id, self.job.secret(), self.hosts, self.rank, port)
        self.wake_reader, self.wake_writer = socket.socketpair()
        for end in (self.wake_reader, self.wake_writer):
            end.setblocking(False)

    def note_term(self, *_: object) -> None:
        """Note that a SIGTERM came; who sent it, and why, is asked later."""
        self.terminated = True

    def wake(self) -> None:
        """Let the loop that sleeps go on."""
        with contextlib.suppress(BlockingIOError):
            self.wake_writer.send(b"\0")

    def attempt_plan(self) -> Dict[str, Any]:
        """Return the plan as this attempt's ranks have it."""
        return plan_of(self.plan, self.attempt)

    def hear(self, now_s: float) -> None:
        """Take in all that lies in the socket."""
        for beat in self.mesh.receive():
            if self.peers.hear(beat, now_s):
                self.ways.note(beat.rank, beat.sent, steady.now())

    def send(self, beat: Beat) -> None:
        """Send it to all others, with the next number."""
        self._beat_number += 1
        self.mesh.send(beat._replace(number=self._beat_number))

    def missing(self, now_s: float) -> List[int]:
        """Return the hosts that have been silent for the lease."""
        return [rank for rank, silent_s in self.peers.silent_s(now_s).items() if silent_s > self.peers.lease_s]

    def is_quorate(self, now_s: float) -> bool:
        """More than half of all hosts are in this attempt."""
        return 2 * (1 + self.peers.in_attempt(now_s)) > len(self.hosts)

    def is_in_touch(self, now_s: float) -> bool:
        """More than half of all hosts are heard and hear this one, or nobody asks: there is no other attempt."""
        return not self.succession.possible or 2 * (1 + self.peers.in_touch(self.rank, now_s)) > len(self.hosts)

    def decide(self, me: Beat, now_s: float) -> Union[Over, Attempt, None]:
        """Return what follows here, where nothing runs."""
        return self.succession.decide(me, self.peers.beats, self.peers.silent_s(now_s), now_s)

    def announcement(self) -> str:
        """Return what a reader of the ranks' output is told where another attempt begins."""
        number, roster, _ = self.attempt
        cause = self.history[-1]["cause"]
        where = f"{cause['host']}" + ("" if cause["rank"] is None else f", rank {cause['rank']}") if cause else ""
        because = f"; the last one failed: {where}: {cause['message']}" if cause else ""
        hosts = ",".join(self.hosts[rank]["name"] for rank in roster)
        return f"nodectl: attempt {number} on {hosts}{because}\n"

    def begin(self, attempt: Attempt, record: Dict[str, Any]) -> None:
        """Go on to this attempt; `record` is what is kept of the one before."""
        self.history = [*self.history, record][-_MOST_RECORDED:]
        self.attempt = attempt
        self.peers.begin(attempt)


def placed(failure: Dict[str, Any], teller: int, hosts: List[Dict[str, str]]) -> Dict[str, Any]:
    """Return a failure with the name of its host; a lost host is not the one that misses it."""
    lost = failure.get("lost")
    if lost is None:
        return {**failure, "host": hosts[teller]["name"]}
    return {**failure, "host": hosts[lost]["name"], "message": str(failure["message"]).partition(": ")[2]}


def _identity() -> Dict[str, Any]:
    """Return what never changes: this process, and the payload that it was started from."""
    stat = read_stat(os.getpid())
    return {
        "pid": os.getpid(),
        "start_ticks": stat.start_ticks if stat else 0,
        "boot_id": boot_id(),
        "started_at": time.time(),
        "payload": payload_folder(),
    }
