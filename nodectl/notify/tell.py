"""What is told from this machine: hosts that turned failed or came back, acceptances, certificates near their end."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from nodectl.common.counting import counted
from nodectl.common.nodeset import fold
from nodectl.model.acceptance import Acceptance, NodeVerdict
from nodectl.model.finding import Finding
from nodectl.model.status import Status
from nodectl.notify.settings import Receiver, documents
from nodectl.payload.notify.queue import Queue

REACH = "reach"
_FAILED, _WELL = "failed", "well"
_DAY_S = 86400.0
_NEAR_DAYS = 7
_SHOWN = 3


class Desk:
    """A fleet's messages on this machine: the queue in `state`, and in it what was told last."""

    def __init__(self, state: Path, fleet: str, receivers: Sequence[Receiver]) -> None:
        self.path = state / "notify" / hashlib.sha256(fleet.encode()).hexdigest()[:16]
        self.queue = Queue(str(self.path))
        self._receivers, self._fleet = receivers, fleet_name(fleet)
        self._rows = documents(receivers, travel=False)

    def tell_health(self, findings: Iterable[Finding]) -> None:
        """Tell which hosts turned failed since the last look, and which came back."""
        with self._told() as told:
            hosts = told.setdefault("hosts", {})
            for host, (state, texts) in turned(hosts, findings).items():
                event, word = ("host-failed", "failed") if state == _FAILED else ("host-recovered", "is well again")
                text = "; ".join(texts) or f"{host} {word}"
                if state == _FAILED or host in hosts:
                    self.tell(event, _id(event, host), f"host {host} {word}", text, host=host)
                hosts[host] = state

    def tell_acceptance(self, acceptance: Acceptance) -> None:
        """Tell an acceptance's verdicts."""
        counts = Counter(str(one.verdict) for one in acceptance.hosts)
        title = f"acceptance of {counted(len(acceptance.hosts), 'node')}: "
        title += ", ".join(f"{count} {verdict}" for verdict, count in sorted(counts.items()))
        bad = [one for one in acceptance.hosts if not one.verdict.accepts]
        text = f"{acceptance.level}, {acceptance.id}" + (
            f"; not accepted: {fold(one.host for one in bad)}" if bad else ""
        )
        rejected = any(one.verdict is NodeVerdict.REJECTED for one in bad)
        state = "rejected" if rejected else "untold" if bad else "accepted"
        self.tell("acceptance", f"acceptance-{acceptance.id}", title, text, state=state)

    def tell_certificate(self, last: Acceptance, now_s: float) -> None:
        """Tell, once a receiver, that the fleet's last acceptance is nearly as old as it may be."""
        with self._told() as told:
            known = told.setdefault("certificates", {})
            for one in self._receivers:
                left = one.certificate_days - (now_s - (last.ended or now_s)) / _DAY_S
                if left > _NEAR_DAYS or known.get(one.name) == last.id:
                    continue
                title = f"the acceptance of {counted(len(last.hosts), 'node')} is near its end"
                left_text = f"{left:.0f} of them are left" if left >= 1 else "and they are over"
                text = f"{last.id} ({last.level}) counts for {one.certificate_days} days, {left_text}; nodectl accept"
                self.tell("certificate", f"certificate-{last.id}", title, text, only=one.name)
                known[one.name] = last.id

    def tell(self, event: str, event_id: str, title: str, text: str, *, only: str = "", **more: object) -> None:
        """Put a message into the queue, of all receivers or the one that is named."""
        self.queue.open({"fleet": self._fleet, "receivers": self._rows})
        self.queue.put(event, event_id, title, text, only=only, **more)

    def send(self, wait_s: float) -> None:
        """Start a sender for what waits, and wait for them for a while; they go on by themselves."""
        if self.path.is_dir():
            self.queue.open({"fleet": self._fleet, "receivers": self._rows})
        senders = [self.queue.start(name) for name in self.queue.names() if self.queue.waiting(name)]
        ends_s = time.monotonic() + wait_s
        while senders and time.monotonic() < ends_s:
            senders = [pid for pid in senders if os.waitpid(pid, os.WNOHANG)[0] == 0]
            time.sleep(0.02)

    @contextmanager
    def _told(self) -> Iterator[dict[str, Any]]:
        """Give what was told, to be changed; nobody else tells meanwhile, and it is kept whatever happens."""
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        kept, told = self.path / "told.json", {}
        with (self.path / "lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            with suppress(OSError, ValueError):
                told = json.loads(kept.read_bytes())
            try:
                yield told
            finally:
                self.queue.write(str(kept), told)


def turned(before: Mapping[str, str], findings: Iterable[Finding]) -> dict[str, tuple[str, list[str]]]:
    """Return the hosts whose state changed: failed or well, and the findings that say so.

    A host that does not answer has failed where it was well before, and others answer: else it may be this machine's
    own network. What could not be told otherwise changes nothing.
    """
    by_host: dict[str, list[Finding]] = {}
    for finding in findings:
        by_host.setdefault(finding.host, []).append(finding)
    silent = {
        host for host, its in by_host.items() if any(one.check == REACH and one.status is Status.UNKNOWN for one in its)
    }
    changes: dict[str, tuple[str, list[str]]] = {}
    for host, its in by_host.items():
        bad = [one for one in its if one.status is Status.FAILED]
        if host in silent and before.get(host) == _WELL and len(silent) < len(by_host):
            bad = [one for one in its if one.check == REACH]
        if bad and before.get(host) != _FAILED:
            changes[host] = _FAILED, [f"{one.check} {one.subject}".strip() + f": {one.actual}" for one in bad[:_SHOWN]]
        elif not bad and host not in silent and before.get(host) != _WELL:
            changes[host] = _WELL, []
    return changes


def fleet_name(fleet: str) -> str:
    """Return a fleet's name for people: its inventory's file or folder, without the way there."""
    return ", ".join(Path(source).name for source in fleet.splitlines())


def _id(event: str, host: str) -> str:
    return f"{event}-{hashlib.sha256(host.encode()).hexdigest()[:12]}-{time.time_ns() // 1_000_000}"
