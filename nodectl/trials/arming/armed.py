"""Hosts that are armed for a trial: whatever becomes of this process, each puts its former values back by itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from nodectl.common import answers
from nodectl.common.access import Access
from nodectl.common.interrupts import interruptible
from nodectl.errors import NodectlError, ParseError, UsageError
from nodectl.model.finding import Finding
from nodectl.model.host import Host
from nodectl.model.result import CommandResult
from nodectl.model.status import Status
from nodectl.model.trial import Side
from nodectl.payload.common import frames
from nodectl.probes.base import Note
from nodectl.transport.base import Transport
from nodectl.transport.fanout import fan_out
from nodectl.trials.arming.leases import Leases, moment
from nodectl.trials.arming.playbooks import TrialPlaybooks, trial_finding

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

    def put_on(self, side: Side) -> tuple[Finding, ...]:
        """Put the side's settings on all hosts that are armed still; a finding for each on which it failed."""
        self.leases.beat(self.hosts)
        gone = {**self.leases.silent(), **self.leases.lost()}
        findings = [
            trial_finding(name, Status.FAILED, side.label, f"nothing was changed: {why}") for name, why in gone.items()
        ]
        left = [host for host in self.hosts if host.name not in gone]
        if left:
            findings += self.playbooks.put_on(left, side).findings
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
        return int(answers.document(result.host, result.stdout))
    except (ParseError, TypeError, ValueError) as error:
        return str(error)
