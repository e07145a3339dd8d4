"""Hosts that are armed for a trial: whatever becomes of this process, each puts its former values back by itself."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from time import monotonic
from typing import Any

from nodectl import __version__
from nodectl.common import bounded_json
from nodectl.common.access import Access
from nodectl.common.node_paths import TRIALS
from nodectl.common.process import handlers_kept, interruptible, operator
from nodectl.errors import NodectlError, ParseError, UsageError
from nodectl.model.finding import Finding
from nodectl.model.host import Host
from nodectl.model.result import CommandResult, Outcome
from nodectl.model.status import Status
from nodectl.model.trial import OWN
from nodectl.payload.common import frames
from nodectl.probes.base import Note
from nodectl.provision.events import ProvisionRun, TaskEvent
from nodectl.provision.run import ProvisionRequest, provision
from nodectl.transport.base import Transport
from nodectl.transport.fanout import fan_out
from nodectl.trials.settings import TUNING, plain

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
    """Return the document `state` of the guard; None if none came."""
    if not result.ok:
        return None
    try:
        state = bounded_json.document(result.host, result.stdout)
    except ParseError:
        return None
    return state if isinstance(state, dict) else None


def _silence(result: CommandResult) -> str:
    if result.outcome is not Outcome.RAN:
        return f"its lease cannot be renewed: {result.error}"
    return f"its lease cannot be renewed: exit status {result.exit_status}: {result.stderr.strip()}"


def _loss(document: Mapping[str, Any], due: int) -> str:
    """Return why the guard cannot be counted on; "" if it watches."""
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


CHECK = "trial"
# after it has acted a guard looks on for this share of the lease, for what a playbook still does
_SETTLE = 0.5


@dataclass(frozen=True, slots=True)
class PlaybookRun:
    """A finished run: what the hosts' own module answered, and findings on those that it did not succeed on."""

    answers: Mapping[str, Mapping[str, Any]]
    findings: tuple[Finding, ...]


@dataclass(frozen=True, slots=True)
class TrialPlaybooks:
    """Runs them under the trial's name, which is also that of the hosts' records."""

    trial: str
    sources: tuple[str, ...]
    forks: int
    access: Access
    note: Note
    # lines that were shown already: each turn reports the same ones
    shown: set[str] = field(default_factory=set)

    def arm(
        self, hosts: Sequence[Host], uids: Mapping[str, int], purpose: str, lease_s: float, force: bool
    ) -> PlaybookRun:
        """Record what stands there and start a guard on each host."""
        variables = {
            "trial_uids": dict(uids),
            "trial_what": purpose,
            "trial_lease_s": lease_s,
            "trial_settle_s": lease_s * _SETTLE,
            "trial_force": force,
        }
        return self._run("trial_arm", hosts, variables, purpose)

    def put_on(self, hosts: Sequence[Host], profile: str) -> PlaybookRun:
        """Put a tuning profile on by tune.yml, and verify it; its Python is the one that a guard takes away."""
        variables: dict[str, Any] = {"ansible_python_interpreter": f"{TRIALS}/{self.trial}/python3"}
        if profile != OWN:
            variables |= {TUNING: plain(profile), "kernel_settings_live_only": True}
        return self._run("trial_on", hosts, variables, profile)

    def take_off(self, hosts: Sequence[Host], purpose: str) -> PlaybookRun:
        """Former values back, looked at, and the guards ended."""
        return self._run("trial_off", hosts, {}, purpose)

    def _run(self, playbook: str, hosts: Sequence[Host], variables: Mapping[str, Any], subject: str) -> PlaybookRun:
        identity = {"run": self.trial, "by": operator(), "nodectl": __version__}
        request = ProvisionRequest(
            playbook,
            self.sources,
            limit=",".join(host.name for host in hosts),
            forks=max(1, min(self.forks, len(hosts))),
            access=self.access,
            variables={**variables, "run_identity": identity},
        )
        with handlers_kept():
            run = provision(request, _ignored)
        for text in dict.fromkeys(event.text for event in run.reports):
            if text not in self.shown:
                self.shown.add(text)
                self.note(text)
        return PlaybookRun(_answers(run), tuple(_findings(run, hosts, subject)))


def _ignored(event: TaskEvent) -> None:
    """Show nothing while the playbook runs: its end holds all that matters."""


def _answers(run: ProvisionRun) -> dict[str, Mapping[str, Any]]:
    """{host: the last `trial` document of node_trial, with the notes of all its answers}."""
    answers: dict[str, dict[str, Any]] = {}
    for answer in run.answers:
        document = answer.result.get("trial")
        if isinstance(document, Mapping):
            before = answers.setdefault(answer.host, {"notes": []})
            before.update({**document, "notes": [*before["notes"], *document.get("notes", ())]})
    return dict(answers)


def _findings(run: ProvisionRun, hosts: Sequence[Host], subject: str) -> list[Finding]:
    """Return a finding for each host on which a task failed or that was not reached."""
    findings: dict[str, Finding] = {}
    for event in run.problems:
        status = Status.FAILED if event.outcome == "failed" else Status.UNKNOWN
        findings.setdefault(event.host, trial_finding(event.host, status, subject, f"{event.task}: {event.text}"))
    for host in hosts:
        tally = run.hosts.get(host.name)
        if host.name not in findings and (tally is None or tally.failed or tally.unreachable):
            reason = "Ansible says nothing about this host"
            findings[host.name] = trial_finding(host.name, Status.UNKNOWN, subject, reason)
    return list(findings.values())


def trial_finding(host: str, status: Status, subject: str, actual: str, remedy: str = "") -> Finding:
    """Return a finding of the check `trial` on one host."""
    return Finding(host, CHECK, status, subject, actual=actual, remedy=remedy, kind="host", hosts=(host,))


# with the guard's own second and what putting back takes, well within a minute and a half of the last sign of life
LEASE_S = 60.0
_ASK_S = 15.0
_ASK = frames.SHELL + 'uid=$(id -u) && frame "$uid"'
_HELD = "wait until that is over, or take its settings off with --force"


@dataclass(slots=True)
class Armed:
    """The hosts that take part; `findings` say why others do not, and after the end what could not be put back."""

    playbooks: TrialPlaybooks
    leases: Leases
    purpose: str
    note: Note
    lease_s: float
    hosts: tuple[Host, ...] = ()
    findings: tuple[Finding, ...] = ()
    # those that were asked to arm: also one of which no answer came may hold a guard
    _asked: tuple[Host, ...] = ()

    def put_on(self, profile: str) -> tuple[Finding, ...]:
        """Put a tuning profile on all hosts that are armed still; a finding for each on which it failed."""
        self.leases.beat(self.hosts)
        gone = {**self.leases.silent(), **self.leases.lost()}
        findings = [
            trial_finding(name, Status.FAILED, profile, f"nothing was changed: {why}") for name, why in gone.items()
        ]
        left = [host for host in self.hosts if host.name not in gone]
        if left:
            findings += self.playbooks.put_on(left, profile).findings
        return tuple(findings)

    def lost(self) -> Mapping[str, str]:
        """{host: why} of those whose guard has acted or cannot be kept waiting: the trial cannot go on with them."""
        return self.leases.lost()

    def arm(self, hosts: Sequence[Host], uids: Mapping[str, int], *, force: bool) -> None:
        """Record, start a guard on each host, and renew from now on; `uids` are the logins that renew."""
        self._asked = tuple(hosts)
        run = self.playbooks.arm(hosts, uids, self.purpose, self.lease_s, force)
        held = {name for name, answer in run.answers.items() if answer.get("state") == "armed"}
        self.hosts = tuple(host for host in hosts if host.name in held)
        self.findings += tuple(
            replace(finding, remedy=_HELD) if "held by trial" in finding.actual else finding for finding in run.findings
        )
        self.leases.start(self.hosts)
        for name, answer in run.answers.items():
            for text in answer["notes"]:
                self.note(f"{name}: {text}")
        bare = sorted(name for name in held if run.answers[name].get("at_boot") == "nothing")
        if bare:
            self.note(
                f"{', '.join(bare)}: without systemd, `nodectl rollback` puts the files back after a reboot meanwhile"
            )

    def leave(self, limit: str | None) -> None:
        """Former values back on every host that may be armed; what could not be done goes into the findings."""
        if not self._asked:
            return
        by_itself = f"it puts its former values back by itself within {self.lease_s:g} s"
        try:
            self.leases.beat(self._asked)
            silent = self.leases.silent()
            self.findings += tuple(
                trial_finding(name, Status.UNKNOWN, "former values", f"{why}; {by_itself}")
                for name, why in silent.items()
            )
            reached = [host for host in self._asked if host.name not in silent]
            if reached:
                self._take_off(reached, limit)
        except KeyboardInterrupt:
            self.note(
                "interrupted while former values were put back: each host does the rest by itself "
                f"within {self.lease_s:g} s"
            )
            raise
        except NodectlError as error:
            self.findings += tuple(
                trial_finding(host.name, Status.UNKNOWN, "former values", f"{error.message}; {by_itself}", error.remedy)
                for host in self._asked
            )
        finally:
            self.leases.stop()

    def _take_off(self, hosts: Sequence[Host], limit: str | None) -> None:
        run = self.playbooks.take_off(hosts, self.purpose)
        option = f"-l '{limit}' " if limit else ""
        remedy = f"nodectl {option}rollback; what stood there is record {self.playbooks.trial}"
        self.findings += tuple(replace(finding, subject="former values", remedy=remedy) for finding in run.findings)
        for name, answer in run.answers.items():
            if answer.get("state") == "by itself":
                when = moment(answer.get("at") or answer.get("since") or 0)
                text = f"was put back by itself at {when}: {answer.get('why', '')}"
                self.findings += (trial_finding(name, Status.WARNING, "former values", text),)


@contextmanager
def armed(
    inventory_sources: Sequence[str],
    limit: str | None,
    hosts: Sequence[Host],
    transport: Transport,
    *,
    trial: str,
    purpose: str,
    note: Note,
    lease_s: float = LEASE_S,
    force: bool = False,
    access: Access | None = None,
    forks: int = 20,
) -> Iterator[Armed]:
    """Arm the hosts (those that `limit` left), and put their former values back at the end of the block.

    `trial` names the record on the hosts: the id by which `tune show` knows it, too.

    The end is any: normal, an exception, Ctrl-C, SIGTERM, a closed terminal. Where it is none of these, or a host
    cannot be reached, the host does it itself `lease_s` after the last renewal, or at its next boot.
    """
    if lease_s <= 0:
        raise UsageError(f"a lease must be longer than {lease_s:g} s", "give a positive number of seconds")
    playbooks = TrialPlaybooks(trial, tuple(inventory_sources), forks, access or Access(), note)
    state = Armed(playbooks, Leases(transport, hosts, trial, lease_s), purpose, note, lease_s)
    with interruptible():
        try:
            uids, state.findings = _logins(transport, hosts)
            answered = [host for host in hosts if host.name in uids]
            if answered:
                state.arm(answered, uids, force=force)
            yield state
        finally:
            state.leave(limit)


def _logins(transport: Transport, hosts: Sequence[Host]) -> tuple[dict[str, int], tuple[Finding, ...]]:
    """({host: user id of the login that renews there}, a finding for each host that did not answer)."""
    uids, findings = {}, []

    def ask(host: Host) -> CommandResult:
        return transport.run(host, ["sh", "-c", _ASK], timeout_s=_ASK_S)

    for host, result in fan_out(hosts, ask, max(1, min(64, len(hosts)))):
        uid = _uid(result)
        if isinstance(uid, int):
            uids[host.name] = uid
        else:
            why = result.error or uid
            findings.append(trial_finding(host.name, Status.UNKNOWN, "arming", why, result.remedy))
    return uids, tuple(findings)


def _uid(result: CommandResult) -> int | str:
    """Return the user id that a host answered; else why there is none."""
    if not result.ok:
        return f"`id -u` ended with {result.exit_status}: {result.stderr.strip()}"
    try:
        return int(bounded_json.document(result.host, result.stdout))
    except (ParseError, TypeError, ValueError) as error:
        return str(error)
