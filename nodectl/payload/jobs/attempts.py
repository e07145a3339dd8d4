"""A host's record of a job over all its attempts, and the decision whether another attempt follows, on which hosts.

`Succession` is pure: the same question is asked on each host, and no host decides alone. The one with the lowest place
among those that are present leads; a host that is behind joins the newest attempt it hears of. A cut-off host ends its
ranks by its lease, and starts none without the others: see docs/jobs.md.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections import Counter
from typing import Any, Dict, FrozenSet, List, NamedTuple, Optional, Sequence, Set, Tuple, Union

from ..common.patterns import lazily
from . import heartbeat as hb
from .failures import first_of_attempt
from .folder import JobFolder, boot_id, payload_folder
from .heartbeat import Attempt, Beat
from .node_end import Leaving
from .process import read_stat

_END_S = 3.0  # what ending ranks takes beside the grace
_BACK_OFF_S, _LONGEST_BACK_OFF_S = 2.0, 60.0
_TEST_S = 30.0  # for a host to say whether it is fit
_REJOIN_S = 300.0
_USAGE_STATUS = 2
# classes of causes that the next attempt would meet again
_MISTAKES = {
    "import_error": "a restart does not mend a module or library that is not there",
    "bad_argument": "a restart does not mend wrong arguments",
    "version_mismatch": "a restart does not mend versions that do not fit together",
    "checkpoint_mismatch": "a restart does not mend a checkpoint of another model",
    "disk_full": "a restart makes no room on a disk",
    "time_limit": "its time is over",
}
# classes of causes that may be gone at the next attempt; of the others a second one in a row ends the job
_PASSING = frozenset(
    (
        *("host_lost", "link", "rebooted", "supervisor", "left", "communication", "rendezvous", "network_interface"),
        *("name_resolution", "download_failed", "killed_from_outside", "launcher_killed", "stopped", "interrupted"),
        *("xid", "hardware_io", "signal", "terminated"),
    )
)
# of these another host may be the remedy, where one stands by
_PERHAPS_THE_HOST = frozenset(
    (
        *("crash", "gpu_error", "gpu_missing", "collective_timeout", "data_damaged", "exit"),
        *("helper_killed", "port_in_use", "hardware_io"),
    )
)
# an Xid by which the driver tells of a program's fault, and not of the GPU's; what is refused, and will be again
_STAYS = lazily(
    r"\bXid \([^)]*\)[^:]*: (?:13|31|43|45)\b|"
    r"\b4(?!08|09|2[59])\d\d Client Error|HTTP Error 4(?!08|09|2[59])\d\d|Client error '4(?!08|09|2[59])\d\d|"
    r"CERTIFICATE_VERIFY_FAILED|Name or service not known|Read-only file system"
)
_NOTHING_SAYS = "and nothing says that a third would not"
_SAME_PLACE_STEPS = 2  # so far apart ranks may be when one of them ends
_NUMBERS = lazily(r"0x[0-9a-f]+|\d+")
_SIGNATURE_CHARS = 300
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

    @property
    def first(self) -> Tuple[int, ...]:
        """The hosts of the first attempt."""
        return tuple(range(self.most))


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


def unmendable(cause: Optional[Dict[str, Any]]) -> str:
    """Return why another attempt would fail in the same way, or "" if it might succeed."""
    if cause is None:
        return ""
    kind, message = cause["kind"], str(cause["message"])
    if cause.get("class") in _MISTAKES:
        return _MISTAKES[str(cause["class"])]
    if kind == "exception" and _MISTAKE.match(message):
        return f"a restart does not mend {message.partition(':')[0]}"
    if kind in ("exit", "launcher") and cause.get("exit_status") == _USAGE_STATUS:
        return "a restart does not mend wrong arguments (exit status 2)"
    if kind == "time_limit":
        return "its time is over"
    if kind == "launcher" and "could not be started" in message:
        return "a restart does not mend a launcher that cannot be started"
    return ""


class Succession:
    """One host's view, from the first attempt to the last; `me` is the beat that it sends itself."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self._culprits: Dict[int, int] = {}  # by attempt: on which host the cause lay
        self._causes: Dict[int, Optional[Dict[str, Any]]] = {}
        self._steps: Dict[int, int] = {}
        self._quiet: Optional[Tuple[Tuple[int, FrozenSet[int]], float]] = None
        self._rested: Tuple[int, float] = (0, 0.0)
        self._alone_since_s: Optional[float] = None

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
        if any(word.state in (hb.STOPPING, hb.STOPPED) for word in all_beats.values()):
            return Over(hb.STOPPED)
        ended = next((word for word in beats.values() if word.over is not None), None)
        if ended is not None:
            return Over(ended.state, ended.over or "")
        later = max((word.attempt for word in beats.values()), key=lambda attempt: attempt.number, default=me.attempt)
        if later.number > me.attempt.number:
            return later
        if all(_in_state(all_beats.get(member), me.attempt, hb.FINISHED) for member in me.attempt.roster):
            return Over(hb.FINISHED)
        present = {member for member in all_beats if member == me.rank or silent_s[member] <= self.rules.lease_s}
        if cut_off := self._cut_off(len(present), now_s):
            return cut_off
        return self._lead(all_beats, present, me.attempt, now_s) if min(present) == me.rank else None

    def _cut_off(self, present: int, now_s: float) -> Optional[Over]:
        """End a part of the job that is half of all hosts or fewer: two parts never go on side by side."""
        if 2 * present > self.rules.members:
            self._alone_since_s = None
            return None
        self._alone_since_s = now_s if self._alone_since_s is None else self._alone_since_s
        if now_s - self._alone_since_s <= self.rules.rejoin_s:
            return None
        heard = f"{present} of {self.rules.members} hosts heard each other for {self.rules.rejoin_s:g} s"
        return Over(hb.FAILED, f"{heard}, and an attempt takes more than half of them", told=False)

    def _lead(
        self, beats: Dict[int, Beat], present: Set[int], attempt: Attempt, now_s: float
    ) -> Union[Over, Attempt, None]:
        if any(beats[member].state in hb.ACTIVE or beats[member].active for member in present):
            self._quiet = None
            return None
        quiet_s = self._quiet_s(attempt.number, frozenset(present), now_s)
        lost = [member for member in attempt.roster if member not in present]
        alike = [beats[member] for member in present if beats[member].attempt.number == attempt.number]
        # a host that has not joined this attempt yet may start ranks of it at any moment
        untested = (len(alike) < len(present) or any(word.fit is None for word in alike)) and quiet_s < _TEST_S
        if (over := self._last(beats, lost, attempt, tested=not untested)) is not None:
            return over
        if 2 * len(present) <= self.rules.members or untested or quiet_s < self._patience_s(len(present), attempt):
            return None
        roster = self._compose(beats, alike, attempt)
        if len(roster) < self.rules.least:
            return self._too_few(alike, len(roster), now_s)
        return Attempt(attempt.number + 1, tuple(roster))

    def _quiet_s(self, number: int, present: FrozenSet[int], now_s: float) -> float:
        """Return for how many seconds the same hosts have been heard while none of them knew of running ranks."""
        if self._quiet is None or self._quiet[0] != (number, present):
            self._quiet = ((number, present), now_s)
        if self._rested[0] != number:
            self._rested = (number, now_s)
        return now_s - self._quiet[1]

    def _patience_s(self, present: int, attempt: Attempt) -> float:
        """Return the seconds to wait before the next attempt.

        Return the back-off; while hosts are not heard, at least the time by which their lease has ended their ranks.
        """
        fence_s = 0.0 if present == self.rules.members else self.rules.lease_s + self.rules.grace_s + _END_S
        return max(min(_LONGEST_BACK_OFF_S, _BACK_OFF_S * 2.0 ** (min(attempt.number, 10) - 1)), fence_s)

    def _last(self, beats: Dict[int, Beat], lost: List[int], attempt: Attempt, *, tested: bool) -> Optional[Over]:
        """Return the job's end if another attempt cannot mend the cause or no restart is left; else None.

        Only `tested` hosts have told at which step the attempt ended.
        """
        culprit, cause = _cause(beats, lost, attempt)
        self._culprits[attempt.number], self._causes[attempt.number] = culprit, cause
        self._steps[attempt.number] = max(word.step for word in beats.values())
        elsewhere = culprit in beats and self._may_go_elsewhere(cause, beats, beats[culprit].fit, tested=tested)
        mistake = "" if elsewhere else unmendable(cause)
        why = mistake or (self._in_vain(beats, attempt) if tested else "")
        if why and cause is not None:
            told, category = str(cause["message"]).partition("\n")[0][:_SIGNATURE_CHARS], _category(cause)
            evidence = "" if category == "time_limit" else f" ({category}: {told})"
            return Over(hb.FAILED, f"not restarted: {why}{evidence}")
        if attempt.number > self.rules.restarts:
            return Over(hb.FAILED, f"not restarted: all {self.rules.restarts} restarts are used")
        return None

    def _may_go_elsewhere(
        self, cause: Optional[Dict[str, Any]], beats: Dict[int, Beat], fit: Optional[str], *, tested: bool
    ) -> bool:
        """Tell whether a spare may mend a full disk: that of its host's own state, so that it is not `fit`."""
        full = cause is not None and _category(cause) == "disk_full"
        return full and any(word.state == hb.SPARE for word in beats.values()) and (bool(fit) or not tested)

    def _in_vain(self, beats: Dict[int, Beat], attempt: Attempt) -> str:
        """Return why the last two attempts show that a third would fail as well; "" if it might succeed."""
        cause, before = self._causes[attempt.number], self._causes.get(attempt.number - 1)
        if cause is None or before is None or _passes(cause) or _passes(before) or self._got_further(attempt.number):
            return ""
        same = _signature(cause) == _signature(before)
        spare = any(word.state == hb.SPARE for word in beats.values())
        another = (
            spare
            and _category(cause) in _PERHAPS_THE_HOST
            and self._is_suspect(self._culprits[attempt.number], attempt.number)
        )
        if another and attempt.number == 2:
            return ""
        step = self._steps[attempt.number]
        where = f", at step {step} again" if step >= 0 else ""
        return f"it failed twice in the same way{where}" if same else f"two attempts failed, {_NOTHING_SAYS}"

    def _got_further(self, number: int) -> bool:
        """Tell whether an attempt told a later step than the one before: then something had passed."""
        before = self._steps.get(number - 1, -1)
        return before >= 0 and self._steps[number] > before + _SAME_PLACE_STEPS

    def _too_few(self, beats: List[Beat], usable: int, now_s: float) -> Optional[Over]:
        if now_s - self._rested[1] <= self.rules.rejoin_s:
            return None
        unfit = sorted({word.fit for word in beats if word.fit})
        because = f" ({'; '.join(unfit)})" if unfit else ""
        why = f"not restarted: {usable} of the {self.rules.least} hosts that it takes were there within"
        return Over(hb.FAILED, f"{why} {self.rules.rejoin_s:g} s{because}")

    def _compose(self, beats: Dict[int, Beat], alike: List[Beat], attempt: Attempt) -> List[int]:
        """Choose the next roster: usable hosts keep their places, and a spare takes that of a lost or unfit host."""
        usable = _connected(sorted(word.rank for word in alike if word.fit == ""), beats)
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
        if self._culprits.get(number) != member:
            return False
        cause = self._causes.get(number)
        broken = cause is not None and _category(cause) == "xid" and _passes(cause)
        return broken or self._culprits.get(number - 1) == member


def _category(cause: Dict[str, Any]) -> str:
    return str(cause.get("class") or cause["kind"])


def _passes(cause: Dict[str, Any]) -> bool:
    """Tell whether a cause may be gone at the next attempt without a change of the program."""
    stays = any(_STAYS.search(str(line)) for line in (cause["message"], *cause.get("evidence", ())))
    return _category(cause) in _PASSING and not stays


def _signature(cause: Dict[str, Any]) -> Tuple[str, str]:
    """Return what two failures of one origin share: the class, and the message without numbers."""
    return _category(cause), _NUMBERS.sub("#", str(cause["message"])[:_SIGNATURE_CHARS])


def _in_state(word: Optional[Beat], attempt: Attempt, state: str) -> bool:
    return word is not None and word.attempt == attempt and word.state == state


def _cause(beats: Dict[int, Beat], lost: Sequence[int], attempt: Attempt) -> Tuple[int, Optional[Dict[str, Any]]]:
    """Return the host (-1: not known) where the likeliest cause lay, and that failure (None: none was reported)."""
    failures = {
        member: word.failure
        for member, word in beats.items()
        if word.failure is not None and word.attempt == attempt and word.failure["kind"] != "host_lost"
    }
    cause = first_of_attempt(failures.values(), host_lost=bool(lost))
    if cause is None:
        return (lost[0] if lost else -1), None
    return next(member for member, failure in failures.items() if failure is cause), cause


def _connected(members: List[int], beats: Dict[int, Beat]) -> List[int]:
    """Return the hosts that all hear each other; the host with most broken connections is left out first."""
    kept = list(members)
    while True:
        complaints = Counter(
            member for one in kept for other in beats[one].missing if other in kept for member in (one, other)
        )
        if not complaints:
            return kept
        kept.remove(max(complaints, key=lambda member: (complaints[member], member)))


_MOST_RECORDED = 100


class Member:
    """Opened once a job; `attempt` is the one under way here, `history` tells of those before it."""

    def __init__(self, job: JobFolder) -> None:
        self.job = job
        self.plan = job.plan()
        self.rank: int = self.plan["rank"]
        self.hosts: List[Dict[str, str]] = self.plan["hosts"]
        rules = Rules.of(self.plan)
        self.attempt = Attempt(1, rules.first)
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
        self.hooks: Set[int] = set()  # the running `on_event` programs
        self._beat_number = 0

    def open(self) -> None:
        """Take the port; OSError if it is taken."""
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

    def hear(self, now_s: float) -> None:
        """Read all heartbeats that have arrived in the socket."""
        for beat in self.mesh.receive():
            self.peers.hear(beat, now_s)

    def send(self, beat: Beat) -> None:
        """Send it to all others, with the next number."""
        self._beat_number += 1
        self.mesh.send(beat._replace(number=self._beat_number))

    def missing(self, now_s: float) -> List[int]:
        """Return the hosts that have been silent for the lease."""
        return [rank for rank, silent_s in self.peers.silent_s(now_s).items() if silent_s > self.peers.lease_s]

    def is_quorate(self, now_s: float) -> bool:
        """Tell whether more than half of all hosts are in this attempt."""
        return 2 * (1 + self.peers.in_attempt(now_s)) > len(self.hosts)

    def is_in_touch(self, now_s: float) -> bool:
        """Tell whether this host and more than half of all hosts hear each other; True if the job has no restarts."""
        return not self.succession.possible or 2 * (1 + self.peers.in_touch(self.rank, now_s)) > len(self.hosts)

    def reports(self, now_s: float) -> bool:
        """Return whether this host runs `on_event`: the lowest that lives."""
        missing = self.missing(now_s)
        return bool(self.plan.get("on_event")) and all(rank in missing for rank in range(self.rank))

    def decide(self, me: Beat, now_s: float) -> Union[Over, Attempt, None]:
        """Return what this host, on which nothing runs, does next: None (wait), the end, or another attempt."""
        return self.succession.decide(me, self.peers.beats, self.peers.silent_s(now_s), now_s)

    def announcement(self) -> str:
        """Return the line that announces an attempt in the ranks' output."""
        number, roster = self.attempt
        cause = self.history[-1]["cause"]
        where = f"{cause['host']}" + ("" if cause["rank"] is None else f", rank {cause['rank']}") if cause else ""
        because = f"; the last one failed: {where}: {cause['message']}" if cause else ""
        hosts = ",".join(self.hosts[rank]["name"] for rank in roster)
        return f"nodectl: attempt {number} on {hosts}{because}\n"

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


def _identity() -> Dict[str, Any]:
    """Return the state's constant part: this process, and the payload from which it was started."""
    stat = read_stat(os.getpid())
    return {
        "pid": os.getpid(),
        "start_ticks": stat.start_ticks if stat else 0,
        "boot_id": boot_id(),
        "started_at": time.time(),
        "payload": payload_folder(),
    }
