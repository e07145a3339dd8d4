"""Hosts that are armed for a trial: if this process is gone, each restores its former live values by itself."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from time import monotonic
from typing import Any

from nodectl import __version__
from nodectl.common.access import Access
from nodectl.common.node_paths import TRIALS
from nodectl.common.process import handlers_kept, interruptible, operator
from nodectl.errors import NodectlError
from nodectl.model.finding import Finding
from nodectl.model.host import Host
from nodectl.model.result import Outcome
from nodectl.model.status import Status
from nodectl.model.trial import OWN
from nodectl.probes.base import Note
from nodectl.provision.events import ProvisionRun
from nodectl.provision.run import ProvisionRequest, provision
from nodectl.transport.base import Transport
from nodectl.transport.fanout import fan_out
from nodectl.trials.sides import TUNING, plain

RENEW_S = 10.0
LEASE_S = 60.0
# a host that does not answer holds up the renewal of the others by so much, which is less than a lease
_ANSWER_S = 10.0
_RESTORED = 9
# no program is started but the shell: a measurement may be under way
_BEAT = f'[ -e "$1/restore" ] || exit {_RESTORED}; echo renewed > "$1/lease"'
# {host: variables of NCCL}
Environment = MutableMapping[str, Mapping[str, str]]


@dataclass(slots=True)
class _Lease:
    answered: float = field(default_factory=monotonic)
    silence: str = ""
    loss: str = ""


class Leases:
    """Renews the leases of a trial; `lost` names the hosts whose values are restored, or may be soon."""

    def __init__(self, transport: Transport, hosts: Sequence[Host], trial: str, lease_s: float) -> None:
        self._transport, self._folder, self._lease_s = transport, f"{TRIALS}/{trial}", lease_s
        self._leases = {host: _Lease() for host in hosts}
        self._stop = threading.Event()

    def start(self, hosts: Sequence[Host]) -> None:
        """Renew the leases of these hosts from now on."""
        threading.Thread(target=self._renew, args=(hosts,), name="leases", daemon=True).start()

    def stop(self) -> None:
        """Renew no more; a renewal that is on its way may still arrive."""
        self._stop.set()

    def lost(self) -> Mapping[str, str]:
        """{host: why}: it has restored its values, or has not answered for half of its lease."""
        reasons, now = {}, monotonic()
        for host, lease in self._leases.items():
            if lease.loss:
                reasons[host.name] = lease.loss
            elif lease.silence and now - lease.answered > self._lease_s / 2:
                reasons[host.name] = lease.silence
        return reasons

    def _renew(self, hosts: Sequence[Host]) -> None:
        while not self._stop.wait(min(RENEW_S, self._lease_s / 4)):
            left = [host for host in hosts if not self._leases[host].loss]
            for _ in fan_out(left, self._once, len(left)):
                pass

    def _once(self, host: Host) -> None:
        lease = self._leases[host]
        result = self._transport.run(host, ["sh", "-c", _BEAT, "sh", self._folder], timeout_s=_ANSWER_S)
        if result.ok:
            lease.answered, lease.silence = monotonic(), ""
        elif result.exit_status == _RESTORED:
            lease.silence, lease.loss = "", "it has restored its former values by itself"
        else:
            why = result.error if result.outcome is not Outcome.RAN else result.stderr.strip()
            lease.silence = f"its lease cannot be renewed: {why}"


@dataclass(frozen=True, slots=True)
class PlaybookRun:
    """A finished run: the answers of node_trial by host, and findings on hosts on which it failed."""

    answers: Mapping[str, Mapping[str, Any]]
    findings: tuple[Finding, ...]


@dataclass(frozen=True, slots=True)
class TrialPlaybooks:
    """Runs the playbooks of one trial."""

    trial: str
    sources: tuple[str, ...]
    forks: int
    access: Access
    note: Note
    # lines that were shown already: each turn reports the same ones
    shown: set[str] = field(default_factory=set)

    def run(self, playbook: str, hosts: Sequence[Host], variables: Mapping[str, Any], subject: str) -> PlaybookRun:
        """Run a playbook of trials on these hosts; findings are about the subject."""
        identity = {"run": self.trial, "by": operator(), "nodectl": __version__}
        request = ProvisionRequest(
            playbook,
            self.sources,
            limit=",".join(host.name for host in hosts),
            forks=max(1, min(self.forks, len(hosts))),
            access=self.access,
            variables={**variables, "run_identity": identity, "trial_id": self.trial},
        )
        with handlers_kept():
            run = provision(request, lambda _: None)
        for text in dict.fromkeys(event.text for event in run.reports):
            if text not in self.shown:
                self.shown.add(text)
                self.note(text)
        answers = {answer.host: answer.result["trial"] for answer in run.answers if "trial" in answer.result}
        return PlaybookRun(answers, tuple(_findings(run, hosts, subject)))


def _findings(run: ProvisionRun, hosts: Sequence[Host], subject: str) -> list[Finding]:
    findings: dict[str, Finding] = {}
    for event in run.problems:
        status = Status.FAILED if event.outcome == "failed" else Status.UNKNOWN
        findings.setdefault(event.host, _finding(event.host, status, subject, f"{event.task}: {event.text}"))
    for host in hosts:
        tally = run.hosts.get(host.name)
        if host.name not in findings and (tally is None or tally.failed or tally.unreachable):
            reason = "Ansible says nothing about this host"
            findings[host.name] = _finding(host.name, Status.UNKNOWN, subject, reason)
    return list(findings.values())


def _finding(host: str, status: Status, subject: str, actual: str, remedy: str = "") -> Finding:
    return Finding(host, "trial", status, subject, actual=actual, remedy=remedy, kind="host", hosts=(host,))


@dataclass(slots=True)
class Armed:
    """The hosts that take part; `findings` say why others do not, and after the end what could not be restored.

    `environment` holds NCCL's variables of the side that is on, which `nccl_of` knows by host and profile.
    """

    playbooks: TrialPlaybooks
    leases: Leases
    purpose: str
    note: Note
    lease_s: float
    environment: Environment
    nccl_of: Callable[[str, Host], Mapping[str, str]]
    hosts: tuple[Host, ...] = ()
    findings: tuple[Finding, ...] = ()
    # those that were asked to arm: also one of which no answer came may be armed
    _asked: tuple[Host, ...] = ()

    def put_on(self, profile: str) -> tuple[Finding, ...]:
        """Set a tuning profile's live values on all hosts; a finding for each failure."""
        variables = {} if profile == OWN else {TUNING: plain(profile)}
        self.environment.update({host.name: self.nccl_of(profile, host) for host in self.hosts})
        return self.playbooks.run("trial_on", self.hosts, variables, profile).findings

    def lost(self) -> Mapping[str, str]:
        """{host: why} of those that have restored their values or do not answer: the trial cannot go on with them."""
        return self.leases.lost()

    def arm(self, hosts: Sequence[Host]) -> None:
        """Start each host's timer, and renew its lease from now on."""
        self._asked = tuple(hosts)
        run = self.playbooks.run("trial_arm", hosts, {"trial_lease_s": self.lease_s}, self.purpose)
        self.hosts = tuple(host for host in hosts if run.answers.get(host.name, {}).get("state") == "armed")
        self.findings += run.findings
        self.leases.start(self.hosts)
        for name, answer in run.answers.items():
            for text in answer["notes"]:
                self.note(f"{name}: {text}")

    def leave(self) -> None:
        """Restore every host that may be armed; what could not be done goes into the findings."""
        by_itself = f"each host restores them by itself within {2 * self.lease_s:g} s"
        try:
            if self._asked:
                self._take_off(by_itself)
        except KeyboardInterrupt:
            self.note(f"interrupted while former values were restored: {by_itself}")
            raise
        except NodectlError as error:
            self.findings += tuple(
                _finding(host.name, Status.UNKNOWN, "former values", f"{error.message}; {by_itself}", error.remedy)
                for host in self._asked
            )
        finally:
            self.leases.stop()

    def _take_off(self, by_itself: str) -> None:
        run = self.playbooks.run("trial_off", self._asked, {}, "former values")
        remedy = "correct what is named; the host tries again every minute, and a reboot restores all"
        for finding in run.findings:
            is_silent = finding.status is Status.UNKNOWN
            actual = f"{finding.actual}; {by_itself}" if is_silent else finding.actual
            self.findings += (replace(finding, actual=actual, remedy="" if is_silent else remedy),)
        for host in self.hosts:
            if run.answers.get(host.name, {}).get("state") == "gone":
                text = "were restored by the host itself, which had not heard of this trial for a minute"
                self.findings += (_finding(host.name, Status.WARNING, "former values", text),)


@contextmanager
def armed(
    inventory_sources: Sequence[str],
    hosts: Sequence[Host],
    transport: Transport,
    *,
    trial: str,
    purpose: str,
    note: Note,
    environment: Environment,
    nccl_of: Callable[[str, Host], Mapping[str, str]],
    lease_s: float = LEASE_S,
    access: Access | None = None,
    forks: int = 20,
) -> Iterator[Armed]:
    """Arm the hosts, and restore their former values at the end of the block.

    The end is any: normal, an exception, Ctrl-C, SIGTERM, a closed terminal. If it is none of these, or a host
    cannot be reached, the host restores itself one to two leases after the last renewal, or by a reboot.
    """
    playbooks = TrialPlaybooks(trial, tuple(inventory_sources), forks, access or Access(), note)
    leases = Leases(transport, hosts, trial, lease_s)
    state = Armed(playbooks, leases, purpose, note, lease_s, environment, nccl_of)
    with interruptible():
        try:
            state.arm(hosts)
            yield state
        finally:
            state.leave()
