"""A run of probes: a host that is lost is noticed soon, said once and not asked again; what is measured is kept."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from time import monotonic, sleep
from typing import TypeVar

from nodectl.model.finding import Finding
from nodectl.model.host import Host
from nodectl.model.result import CommandResult, Outcome
from nodectl.model.status import Status
from nodectl.probes.base import ProbeResult
from nodectl.transport.base import Call, CallTransport, Transport

T = TypeVar("T")
R = TypeVar("R")
# when a host was heard last, of those that say every other second that they are there
Heard = Callable[[], Mapping[str, float]]
# so long without a word, and then without an answer: on a busy host a beat may be late
_SILENT_S, _ANSWER_S = 6.0, 6.0
_POLL_S = 0.5
# where more than this part is silent at once, load is likelier: so many times as long
_MANY, _PATIENCE = 0.2, 3
_REMEDY = "look at its power, its link and sshd, then measure it again"
_MOST_EVIDENCE = 3


@dataclass(frozen=True, slots=True)
class Loss:
    """Why a host is not asked any more, and what to do."""

    reason: str
    remedy: str = _REMEDY


@dataclass(slots=True)
class Watched(CallTransport):
    """A transport that does not wait for a host that is lost, and does not ask it again.

    `lost` may name hosts that were not reached before; `heard` has those that beat. `measured` is what was measured so
    far, for those who end it early.
    """

    inner: Transport
    heard: Heard = dict
    lost: dict[str, Loss] = field(default_factory=dict)
    measured: list[ProbeResult] = field(default_factory=list)
    closed: bool = False
    _answered: dict[str, float] = field(default_factory=dict)
    _confirming: dict[str, threading.Lock] = field(default_factory=lambda: defaultdict(threading.Lock))

    def call(self, call: Call) -> CommandResult:
        """Return it as the inner transport does; its answer is not waited for where the host is lost meanwhile."""
        name = call.host.name
        if name in self.lost:
            return self._absent(call)
        answers: SimpleQueue[CommandResult | BaseException] = SimpleQueue()
        threading.Thread(target=_carry_out, args=(self.inner, call, answers), daemon=True).start()
        while True:
            try:
                answer = answers.get(timeout=_POLL_S)
            except Empty:
                if self._is_lost(call.host):
                    return self._absent(call)
                continue
            if isinstance(answer, BaseException):
                raise answer
            if answer.outcome is Outcome.UNREACHABLE and self._falls_silent(name):
                self.lost.setdefault(name, Loss(answer.error, answer.remedy or _REMEDY))
            return answer

    def close(self) -> None:
        """Close the inner transport; what fails from now on says nothing of a host."""
        self.closed = True
        self.inner.close()

    def keep(self, result: ProbeResult) -> None:
        """Keep what a part of a probe has come to."""
        self.measured.append(ProbeResult(result.measurements) if self.closed else result)

    def _is_lost(self, host: Host) -> bool:
        """Return whether the host is lost: one that has beaten and is silent is asked once before it counts so."""
        heard_at = self.heard().get(host.name)
        if host.name in self.lost or heard_at is None or self._beats(host.name):
            return host.name in self.lost
        with self._confirming[host.name]:
            if host.name not in self.lost and not self._beats(host.name):
                answer = self.inner.run(host, ["true"], timeout_s=self._patience() * _ANSWER_S)
                if answer.outcome is Outcome.RAN:
                    self._answered[host.name] = monotonic()
                else:
                    silent_s = monotonic() - heard_at
                    self.lost[host.name] = Loss(f"it stopped answering: nothing was heard of it for {silent_s:.0f} s")
            return host.name in self.lost

    def _falls_silent(self, name: str) -> bool:
        since = monotonic()
        while self._beats(name) and not self.closed:
            if self._heard_at(name) >= since:
                return False
            sleep(_POLL_S)
        return not self._beats(name)

    def _beats(self, name: str) -> bool:
        return monotonic() - self._heard_at(name) < self._patience() * _SILENT_S

    def _heard_at(self, name: str) -> float:
        return max(self.heard().get(name, 0.0), self._answered.get(name, 0.0))

    def _patience(self) -> int:
        heard, now = self.heard(), monotonic()
        late = sum(now - heard_at > _SILENT_S for name, heard_at in heard.items() if name not in self.lost)
        return _PATIENCE if late > max(1, _MANY * len(heard)) else 1

    def _absent(self, call: Call) -> CommandResult:
        loss = self.lost[call.host.name]
        argv = tuple(call.argv)
        return CommandResult(call.host.name, argv, Outcome.UNREACHABLE, None, "", "", 0.0, loss.reason, loss.remedy)


def keeping(transport: Transport, work: Callable[[T], R]) -> Callable[[T], R]:
    """Return `work`, whose results are kept where the transport is that of a run."""

    def kept(item: T) -> R:
        value = work(item)
        if isinstance(transport, Watched) and isinstance(value, ProbeResult):
            transport.keep(value)
        return value

    return kept


def _carry_out(transport: Transport, call: Call, answers: SimpleQueue[CommandResult | BaseException]) -> None:
    try:
        answers.put(
            transport.run(call.host, call.argv, timeout_s=call.timeout_s, stdin=call.stdin, on_output=call.on_output)
        )
    except BaseException as error:  # the caller's to raise
        answers.put(error)


def said_once(probe: str, result: ProbeResult, lost: Mapping[str, Loss], reported: Sequence[str]) -> ProbeResult:
    """Return the result of a probe with one finding for each lost host, in the place of all that its loss explains.

    `reported` were lost before, and have their finding already.
    """
    kept: list[Finding] = []
    explained: dict[str, list[str]] = {name: [] for name in lost}
    culprits = {one.host for one in result.findings if one.status is Status.FAILED and one.kind == "host"}
    # what the others of a collective saw of its end, if no host but lost ones is to blame for that
    of_its_end = sorted(lost) if culprits <= {*lost} else []
    for finding in result.findings:
        # a rank that ended and was cleared of blame; wrong results have a subject, and stand
        blameless = (finding.status, finding.kind, finding.action, finding.subject) == (Status.FAILED, "", "none", "")
        saw_its_end = bool(of_its_end) and blameless
        names = of_its_end if saw_its_end else [name for name in (finding.host, *finding.hosts) if name in lost]
        # faults of a host itself, such as wrong results, stand
        if finding.status is Status.FAILED:
            is_explained = finding.kind in ("path", "direction") or finding.subject == "fails"
        else:
            is_explained = finding.status is Status.UNKNOWN or finding.subject == "unsettled"
        if names and (saw_its_end or is_explained):
            explained[names[0]].append(finding.actual)
        else:
            kept.append(finding)
    losses = [_finding(probe, name, loss, explained[name]) for name, loss in lost.items() if name not in reported]
    return ProbeResult(result.measurements, (*losses, *kept))


def _finding(probe: str, host: str, loss: Loss, explained: Sequence[str]) -> Finding:
    others = [text for text in dict.fromkeys(explained) if text != loss.reason]
    more = f"; and {len(others) - _MOST_EVIDENCE} more" if len(others) > _MOST_EVIDENCE else ""
    return Finding(
        host,
        probe,
        Status.UNKNOWN,
        "lost",
        actual=f"{loss.reason}; what needs it is not measured, and it is not asked again",
        remedy=loss.remedy,
        evidence="; ".join(others[:_MOST_EVIDENCE]) + more,
        kind="host",
        hosts=(host,),
    )
