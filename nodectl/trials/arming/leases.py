"""The leases of a trial's hosts: renewed over SSH, host by host, for as long as this process lives and is awake."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from time import monotonic
from typing import Any

from nodectl.common import answers
from nodectl.common.node_paths import TRIALS
from nodectl.errors import ParseError
from nodectl.model.host import Host
from nodectl.model.result import CommandResult, Outcome
from nodectl.payload.common import frames
from nodectl.transport.base import Transport
from nodectl.transport.fanout import fan_out

RENEW_S = 10.0
# a guard looks twice a second; on a host that is at its limit it may come late
SLOW_S = 8.0
# by a host that does not answer the others are not held up: each has a thread of its own
_ANSWER_S = 10.0
# no program is started but the shell and one cat: a measurement may be under way
_BEAT = (
    frames.SHELL + 'cd -- "$1" 2>/dev/null || { frame "{}"; exit 0; }; [ ! -f lease ] || echo "$2" > lease; '
    'state=$(cat state) && frame "$state"'
)


@dataclass(slots=True)
class _Lease:
    """One host's lease: beats sent (number, monotonic time), time of the last answer, why it is silent or lost."""

    beat: int = 0
    sent: deque[tuple[int, float]] = field(default_factory=lambda: deque(maxlen=32))
    answered: float = field(default_factory=monotonic)
    silence: str = ""
    loss: str = ""
    lock: threading.Lock = field(default_factory=threading.Lock)

    def due(self, now: float) -> int:
        """Return the last beat that a guard has had the time to see."""
        return max((beat for beat, sent in self.sent if now - sent > SLOW_S), default=0)


class Leases:
    """Keeps the guards of a trial waiting; `lost` says which of them can no longer be counted on."""

    def __init__(self, transport: Transport, hosts: Sequence[Host], trial: str, lease_s: float) -> None:
        self._transport, self._folder, self._lease_s = transport, f"{TRIALS}/{trial}", lease_s
        self._every_s = min(RENEW_S, lease_s / 4)
        self._leases = {host: _Lease() for host in hosts}
        self._stop = threading.Event()

    def start(self, hosts: Sequence[Host]) -> None:
        """Renew the leases of these hosts from now on; the others were not armed, and are only asked at the end."""
        for host in hosts:
            threading.Thread(target=self._renew, args=(host,), name=f"lease {host.name}", daemon=True).start()

    def stop(self) -> None:
        """Renew no more; a renewal that is on its way may still arrive."""
        self._stop.set()

    def beat(self, hosts: Sequence[Host]) -> None:
        """Renew at once, and learn how these hosts stand."""
        for _ in fan_out(hosts, self._once, max(1, len(hosts))):
            pass

    def lost(self) -> Mapping[str, str]:
        """{host: why}: the guard has acted or is gone, or the host has not answered for half of its lease."""
        reasons, now = {}, monotonic()
        for host, lease in self._leases.items():
            if lease.loss:
                reasons[host.name] = lease.loss
            elif lease.silence and now - lease.answered > self._lease_s / 2:
                reasons[host.name] = lease.silence
        return reasons

    def silent(self) -> Mapping[str, str]:
        """{host: why}: those that did not answer when last asked."""
        return {host.name: lease.silence for host, lease in self._leases.items() if lease.silence}

    def _renew(self, host: Host) -> None:
        while not self._stop.is_set() and not self._leases[host].loss:
            self._once(host)
            self._stop.wait(self._every_s)

    def _once(self, host: Host) -> None:
        lease = self._leases[host]
        with lease.lock:
            lease.beat += 1
            lease.sent.append((lease.beat, monotonic()))
            argv = ["sh", "-c", _BEAT, "sh", self._folder, str(lease.beat)]
            result = self._transport.run(host, argv, timeout_s=_ANSWER_S)
            state = _guard_state(result)
            if state is None:
                lease.silence = _silence(result)
                return
            lease.answered, lease.silence = monotonic(), ""
            lease.loss = _loss(state, lease.due(monotonic()))


def _guard_state(result: CommandResult) -> Mapping[str, Any] | None:
    """Return the document `state` of the guard; None where none came."""
    if not result.ok:
        return None
    try:
        state = answers.document(result.host, result.stdout)
    except ParseError:
        return None
    return state if isinstance(state, dict) else None


def _silence(result: CommandResult) -> str:
    if result.outcome is not Outcome.RAN:
        return f"its lease cannot be renewed: {result.error}"
    return f"its lease cannot be renewed: exit status {result.exit_status}: {result.stderr.strip()}"


def _loss(document: Mapping[str, Any], due: int) -> str:
    """Why the guard cannot be counted on; empty where it watches."""
    state = document.get("state")
    if state == "restored":
        return f"put its former values back by itself at {moment(document.get('at'))}: {document.get('why', '')}"
    if state == "restoring":
        errors = "; ".join(map(str, document.get("errors") or ())) or "under way"
        return f"is putting its former values back by itself ({document.get('why', '')}): {errors}"
    if state != "armed":
        return "is no longer armed: another nodectl has taken the trial off"
    # the document is older than this beat: the guard writes it once it has seen one
    seen = str(document.get("seen") or 0)
    if seen.isdigit() and int(seen) < due:
        return "nobody watches it any more: its guard does not answer"
    return ""


def moment(seconds: object) -> str:
    """Return a host's time, in seconds since 1970, for people."""
    if not isinstance(seconds, int | float) or not 0 < seconds < 1e11:
        return "an unknown time"
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S} UTC"
