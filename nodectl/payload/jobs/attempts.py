"""A host's record of a job over all its attempts, and what follows an attempt: another one, or the end.

The first host leads: its supervisor alone numbers the attempts and chooses their hosts, and all others join the attempt
that its heartbeats name. Nothing runs beside a new attempt: a host that does not hear the first one ends its ranks by
its lease, and the first one waits for that long before it starts ranks without a host (docs/architecture.md).
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
from typing import Any, Dict, FrozenSet, List, NamedTuple, Optional, Sequence, Set, Tuple, Union

from ..common.on_event import compose
from ..common.patterns import lazily
from ..common.secret_words import without_secrets
from . import heartbeat as hb
from .contain import Containment
from .failures import first_of_attempt
from .folder import JobFolder, boot_id, payload_folder
from .guard import Guard
from .heartbeat import LEADER, Attempt, Beat
from .node_end import Leaving
from .process import read_stat, spawn_payload

_END_S = 3.0  # what ending ranks takes in addition to the grace
_PAUSE_S = 2.0
_TEST_S = 30.0  # for a host to report whether it is fit
_REJOIN_S = 300.0
_USAGE_STATUS = 2
_MESSAGE_CHARS = 300
# classes of causes that the next attempt would meet again
_MISTAKES = frozenset(
    ("import_error", "bad_argument", "version_mismatch", "checkpoint_mismatch", "disk_full", "time_limit")
)
_MISTAKE = lazily(r"(?:\w+\.)*(ImportError|ModuleNotFoundError|SyntaxError|IndentationError|TabError)\b")


class Over(NamedTuple):
    """The end of a job: its state, `why` no other attempt follows, and whether the other hosts are `told` so."""

    state: str
    why: str = ""
    told: bool = True


class Rules(NamedTuple):
    """The plan's rules: an attempt takes `least` to `most` hosts, and waits `rejoin_s` for hosts that are missing."""

    members: int
    least: int
    most: int
    restarts: int
    lease_s: float
    grace_s: float
    rejoin_s: float = _REJOIN_S

    @classmethod
    def of(cls, plan: Dict[str, Any]) -> Rules:
        """Return those of a job's plan."""
        members = len(plan["hosts"])
        most = int(plan.get("nodes") or members)
        least = int(plan.get("least_nodes") or most)
        restarts, more_s = int(plan.get("restarts", 0)), float(plan.get("rejoin_s") or _REJOIN_S)
        lease_s, grace_s = float(plan["lease_s"]), float(plan["grace_s"])
        return cls(members, least, most, restarts, lease_s, grace_s, more_s)


def plan_of(plan: Dict[str, Any], attempt: Attempt) -> Dict[str, Any]:
    """Return the plan for one attempt: `hosts` are the attempt's, `rank` is this host's place there, or None."""
    members, member = plan["hosts"], plan["rank"]
    rank = attempt.roster.index(member) if member in attempt.roster else None
    hosts = [members[number] for number in attempt.roster]
    return {
        **plan,
        "members": members,
        "member": member,
        "hosts": hosts,
        "rank": rank,
        "attempt": attempt.number,
    }


def is_mistake(cause: Dict[str, Any]) -> bool:
    """Tell whether another attempt would fail in the same way."""
    kind, message = cause["kind"], str(cause["message"])
    return (
        _category(cause) in _MISTAKES
        or (kind == "exception" and _MISTAKE.match(message) is not None)
        or (kind in ("exit", "launcher") and cause.get("exit_status") == _USAGE_STATUS)
        or (kind == "launcher" and "could not be started" in message)
    )


class Succession:
    """One host's view, from the first attempt to the last; `me` is the beat that it sends itself."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        # by attempt: the host where the likeliest cause lay (-1: unknown), and whether it was a GPU's
        self._culprits: Dict[int, Tuple[int, bool]] = {}
        self._quiet: Optional[Tuple[Tuple[int, FrozenSet[int]], float]] = None
        self._rested: Tuple[int, float] = (0, 0.0)

    @property
    def possible(self) -> bool:
        """Tell whether the plan allows any restart."""
        return self.rules.restarts > 0

    def decide(
        self, me: Beat, beats: Dict[int, Beat], silent_s: Dict[int, float], now_s: float
    ) -> Union[Over, Attempt, None]:
        """Return what follows when nothing runs on this host: nothing yet, the end, or another attempt."""
        if not self.possible:
            return Over(me.state)
        all_beats = {**beats, me.rank: me}
        if any(beat.state in (hb.STOPPING, hb.STOPPED) for beat in all_beats.values()):
            return Over(hb.STOPPED)
        members = [all_beats.get(member) for member in me.attempt.roster]
        if all(beat and (beat.attempt, beat.state) == (me.attempt, hb.FINISHED) for beat in members):
            return Over(hb.FINISHED)
        if me.rank != LEADER:
            return self._follow(me, beats.get(LEADER), silent_s[LEADER])
        present = {
            member
            for member, beat in all_beats.items()
            if member == LEADER or (silent_s[member] <= self.rules.lease_s and beat.over is None)
        }
        return self._lead(all_beats, present, me.attempt, now_s)

    def _follow(self, me: Beat, leader: Optional[Beat], silent_s: float) -> Union[Over, Attempt, None]:
        if leader is not None and leader.over is not None:
            return Over(leader.state, leader.over)
        if leader is not None and leader.attempt.number > me.attempt.number:
            return leader.attempt
        if silent_s <= self.rules.rejoin_s:
            return None
        why = f"not restarted: the first host, which alone starts attempts, was silent for {self.rules.rejoin_s:g} s"
        return Over(hb.FAILED, why, told=False)

    def _lead(
        self, beats: Dict[int, Beat], present: Set[int], attempt: Attempt, now_s: float
    ) -> Union[Over, Attempt, None]:
        if any(beats[member].state in hb.ACTIVE for member in present):
            self._quiet = None
            return None
        quiet_s = self._quiet_s(attempt.number, frozenset(present), now_s)
        lost = [member for member in attempt.roster if member not in present]
        alike = [beats[member] for member in present if beats[member].attempt.number == attempt.number]
        # a host that has not joined this attempt yet may start ranks of it at any moment
        untested = (len(alike) < len(present) or any(beat.fit is None for beat in alike)) and quiet_s < _TEST_S
        if (over := self._end_without_restart(beats, lost, attempt)) is not None:
            return over
        # while a host is not heard, wait until its own lease has ended its ranks
        fence_s = self.rules.lease_s + self.rules.grace_s + _END_S
        if untested or quiet_s < (_PAUSE_S if len(present) == self.rules.members else fence_s):
            return None
        roster = self._compose(alike, attempt)
        if len(roster) < self.rules.least:
            return self._too_few(alike, len(roster), now_s)
        return Attempt(attempt.number + 1, tuple(roster))

    def _quiet_s(self, number: int, present: FrozenSet[int], now_s: float) -> float:
        """Return for how many seconds the same hosts have been heard while none of them had running ranks."""
        if self._quiet is None or self._quiet[0] != (number, present):
            self._quiet = ((number, present), now_s)
        if self._rested[0] != number:
            self._rested = (number, now_s)
        return now_s - self._quiet[1]

    def _end_without_restart(self, beats: Dict[int, Beat], lost: List[int], attempt: Attempt) -> Optional[Over]:
        culprit, cause = _cause(beats, lost, attempt)
        self._culprits[attempt.number] = culprit, cause is not None and _category(cause) == "xid"
        if cause is not None and is_mistake(cause):
            message = str(cause["message"]).partition("\n")[0][:_MESSAGE_CHARS]
            return Over(hb.FAILED, f"not restarted: a restart does not mend it ({_category(cause)}: {message})")
        if attempt.number > self.rules.restarts:
            return Over(hb.FAILED, f"not restarted: all {self.rules.restarts} restarts are used")
        return None

    def _too_few(self, beats: List[Beat], usable: int, now_s: float) -> Optional[Over]:
        if now_s - self._rested[1] <= self.rules.rejoin_s:
            return None
        unfit = sorted({beat.fit for beat in beats if beat.fit})
        because = f" ({'; '.join(unfit)})" if unfit else ""
        why = f"not restarted: {usable} of the {self.rules.least} hosts that it takes were there within"
        return Over(hb.FAILED, f"{why} {self.rules.rejoin_s:g} s{because}")

    def _compose(self, alike: List[Beat], attempt: Attempt) -> List[int]:
        """Choose the next roster: usable hosts keep their places, and a spare takes that of a lost or unfit host."""
        usable = sorted(beat.rank for beat in alike if beat.fit == "")
        spares = [member for member in usable if member not in attempt.roster]
        roster: List[int] = []
        for member in attempt.roster:
            if member in usable and not (spares and self._is_suspect(member, attempt.number)):
                roster.append(member)
            elif spares:
                roster.append(spares.pop(0))
        return (roster + spares)[: self.rules.most]

    def _is_suspect(self, member: int, number: int) -> bool:
        """Tell whether the last two attempts failed because of this host, or the last one because of a GPU of it."""
        culprit, is_gpu = self._culprits[number]
        return culprit == member and (is_gpu or self._culprits.get(number - 1, (-1, False))[0] == member)


def _category(cause: Dict[str, Any]) -> str:
    return str(cause.get("class") or cause["kind"])


def _cause(beats: Dict[int, Beat], lost: Sequence[int], attempt: Attempt) -> Tuple[int, Optional[Dict[str, Any]]]:
    """Return the host (-1: unknown) where the likeliest cause lay, and that failure (None: none was reported)."""
    failures = {
        member: beat.failure
        for member, beat in beats.items()
        if beat.failure is not None and beat.attempt == attempt and beat.failure["kind"] != "host_lost"
    }
    cause = first_of_attempt(failures.values(), host_lost=bool(lost))
    if cause is None:
        return (lost[0] if lost else -1), None
    return next(member for member, failure in failures.items() if failure is cause), cause


_MOST_RECORDED = 100


class Member:
    """Opened once a job; `attempt` is the one under way here, `history` tells of those before it."""

    def __init__(self, job: JobFolder) -> None:
        self.job = job
        self.plan = job.plan()
        self.rank: int = self.plan["rank"]
        self.hosts: List[Dict[str, str]] = self.plan["hosts"]
        rules = Rules.of(self.plan)
        self.attempt = Attempt(1, tuple(range(rules.most)))
        self.succession = Succession(rules)
        self.stop_asked = False
        self.terminated = False
        self.leaving: Optional[Leaving] = None
        self.history: List[Dict[str, Any]] = []
        self.born_s = time.monotonic()
        others = [rank for rank in range(len(self.hosts)) if rank != self.rank]
        self.peers = hb.Peers(others, rules.lease_s, self.born_s)
        self.peers.begin(self.attempt)
        self.guard = Guard(0, -1)
        self._beat_number = 0

    def open(self) -> None:
        """Take the port; OSError if it is taken."""
        port = int(self.plan["heartbeat_port"])
        self.mesh = hb.Mesh(self.job.id, self.job.secret(), self.hosts, self.rank, port)
        self.wake_reader, self.wake_writer = socket.socketpair()
        for end in (self.wake_reader, self.wake_writer):
            end.setblocking(False)

    def be_guarded(self, container: Sequence[str]) -> None:
        """Go on in a child process, which the calling one guards; `container` is the command that ends the job's."""
        self.containment = Containment.create(self.job.id, container)
        self.guard = Guard.fork(self.job, self.containment, self.peers.lease_s)
        stat = read_stat(os.getpid())
        self.identity = {  # the state's constant part
            "pid": os.getpid(),
            "start_ticks": stat.start_ticks if stat else 0,
            "boot_id": boot_id(),
            "started_at": time.time(),
            "payload": payload_folder(),
            "rank": self.rank,
        }

    def note_term(self, *_: object) -> None:
        """Note that a SIGTERM came; who sent it, and why, is asked later."""
        self.terminated = True

    def wake(self) -> None:
        """Let the loop that sleeps go on."""
        with contextlib.suppress(BlockingIOError):
            self.wake_writer.send(b"\0")

    def send(self, beat: Beat) -> None:
        """Send it to all others, with the next number."""
        self._beat_number += 1
        self.mesh.send(beat._replace(number=self._beat_number))

    def reports(self, now_s: float) -> bool:
        """Return whether this host runs `on_event`: the lowest that lives."""
        silent_s = self.peers.silent_s(now_s)
        return bool(self.plan.get("on_event")) and all(silent_s[rank] > self.peers.lease_s for rank in range(self.rank))

    def begin(self, attempt: Attempt, record: Dict[str, Any]) -> None:
        """Start this attempt; `record` summarises the one before and is added to the history."""
        self.history = [*self.history, record][-_MOST_RECORDED:]
        self.attempt = attempt
        self.peers.begin(attempt)


def placed(failure: Dict[str, Any], teller: int, hosts: List[Dict[str, str]]) -> Dict[str, Any]:
    """Return a failure with its host's name; of a lost host its own name, and not that of `teller`, which misses it."""
    lost = failure.get("lost")
    if lost is None:
        return {**failure, "host": hosts[teller]["name"]}
    return {**failure, "host": hosts[lost]["name"], "message": str(failure["message"]).partition(": ")[2]}


def report(
    member: Member, event: str, what: str, why: str = "", cause: Optional[Dict[str, Any]] = None, **details: Any
) -> None:
    """Start the plan's `on_event` program for an event, unless the start was undone; it is no process of the job."""
    plan, host = member.plan, str(cause["host"]) if cause else None
    if member.job.undone:
        return
    by = member.job.stopped_by() if details.get("state") == hb.STOPPED else ""
    parts = [why, by and f"by {by}"]
    if cause:
        message = without_secrets(str(cause["message"]).partition("\n")[0])[:_MESSAGE_CHARS]
        rank, line = cause.get("rank"), cause.get("line") or ""
        kind = cause.get("class", cause["kind"])
        details["cause"] = {"host": host, "rank": rank, "class": kind, "message": message, "line": line}
        parts = [str(host), "" if rank is None else f"rank {rank}", message, line, *parts]
    summary = ": ".join(filter(None, (what, ", ".join(filter(None, parts)))))
    name = f"job {plan['id']} ({os.path.basename(str(plan['script']))})"
    document = compose(event, f"{name} {summary}", {"cause": None, **details}, host=host, job=plan["id"])
    member.containment.spared.add(spawn_payload("common.on_event", *plan["on_event"], stdin=document))
