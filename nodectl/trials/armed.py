"""Hosts that are armed for a trial: whatever becomes of this process, each puts its former values back by itself."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from nodectl.errors import NodectlError, UsageError
from nodectl.model.finding import Finding
from nodectl.model.host import Host
from nodectl.model.result import CommandResult
from nodectl.model.status import Status
from nodectl.probes.base import Note
from nodectl.transport.base import Transport
from nodectl.transport.fanout import fan_out
from nodectl.trials.apply_settings import Setting
from nodectl.trials.arm_lease import Leases
from nodectl.trials.arm_playbooks import TrialPlaybooks, finding
from nodectl.trials.arm_signals import interruptible

__all__ = ["LEASE_S", "Armed", "Setting", "armed"]

# with the guard's own second and what putting back takes, well within a minute and a half of the last sign of life
LEASE_S = 60.0
_ASK_S = 15.0
_HELD = "wait until that is over, or take its settings off with --force"


@dataclass(slots=True)
class Armed:
    """The hosts that take part; `findings` say why others do not, and after the end what could not be put back."""

    trial: str
    hosts: tuple[Host, ...] = ()
    findings: tuple[Finding, ...] = ()
    _playbooks: TrialPlaybooks | None = field(default=None, repr=False)
    _leases: Leases | None = field(default=None, repr=False)

    def put_on(self, setting: Setting) -> tuple[Finding, ...]:
        """Put the setting on all hosts that are armed still; a finding for each on which it failed."""
        assert self._playbooks is not None and self._leases is not None  # noqa: S101 - only `armed` makes one
        self._leases.beat(self.hosts)
        gone = {**self._leases.silent(), **self._leases.lost()}
        found = [
            finding(name, Status.FAILED, setting.label, f"nothing was changed: {why}") for name, why in gone.items()
        ]
        left = [host for host in self.hosts if host.name not in gone]
        if left:
            found += self._playbooks.put_on(left, setting).findings
        return tuple(found)

    def lost(self) -> Mapping[str, str]:
        """{host: why} of those whose guard has acted or cannot be kept waiting: the trial cannot go on with them."""
        return self._leases.lost() if self._leases else {}


@contextmanager
def armed(
    inventory_sources: Sequence[str],
    limit: str | None,
    hosts: Sequence[Host],
    transport: Transport,
    *,
    what: str,
    note: Note,
    lease_s: float = LEASE_S,
    force: bool = False,
    become_password: str | None = None,
    forks: int = 20,
) -> Iterator[Armed]:
    """Arm the hosts (those that `limit` left), and put their former values back at the end of the block.

    The end is any: normal, an exception, Ctrl-C, SIGTERM, a closed terminal. Where it is none of these, or a host
    cannot be reached, the host does it itself `lease_s` after the last renewal, or at its next boot.
    """
    if lease_s <= 0:
        raise UsageError(f"a lease of {lease_s:g} s is none", "give a positive number of seconds")
    trial = f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-trial-{secrets.token_hex(3)}"
    playbooks = TrialPlaybooks(trial, tuple(inventory_sources), forks, become_password, note)
    state = Armed(trial, _playbooks=playbooks)
    tried: tuple[Host, ...] = ()
    with interruptible():
        try:
            uids, state.findings = _logins(transport, hosts)
            tried = tuple(host for host in hosts if host.name in uids)
            if tried:
                _arm(state, playbooks, transport, tried, uids, what=what, lease_s=lease_s, force=force, note=note)
            yield state
        finally:
            _leave(state, playbooks, tried, what=what, lease_s=lease_s, limit=limit, note=note)


def _logins(transport: Transport, hosts: Sequence[Host]) -> tuple[dict[str, int], tuple[Finding, ...]]:
    """Who renews on each host: the login that this nodectl has there."""
    uids, found = {}, []

    def ask(host: Host) -> CommandResult:
        return transport.run(host, ["id", "-u"], timeout_s=_ASK_S)

    for host, done in fan_out(hosts, ask, max(1, min(64, len(hosts)))):
        text = done.stdout.strip()
        if done.ok and text.isdigit():
            uids[host.name] = int(text)
        else:
            why = done.error or f"`id -u` ended with {done.exit_status}: {done.stderr.strip()}"
            found.append(finding(host.name, Status.UNKNOWN, "arming", why, done.remedy))
    return uids, tuple(found)


def _arm(
    state: Armed,
    playbooks: TrialPlaybooks,
    transport: Transport,
    hosts: tuple[Host, ...],
    uids: Mapping[str, int],
    *,
    what: str,
    lease_s: float,
    force: bool,
    note: Note,
) -> None:
    state._leases = Leases(transport, hosts, playbooks.trial, lease_s)
    ran = playbooks.arm(hosts, uids, what, lease_s, force)
    held = {name for name, said in ran.answers.items() if said.get("state") == "armed"}
    state.hosts = tuple(host for host in hosts if host.name in held)
    state.findings += tuple(
        replace(each, remedy=_HELD) if "held by trial" in each.actual else each for each in ran.findings
    )
    state._leases.start(state.hosts)
    for name, said in ran.answers.items():
        for text in said["notes"]:
            note(f"{name}: {text}")
    bare = sorted(name for name in held if ran.answers[name].get("at_boot") == "nothing")
    if bare:
        note(f"{', '.join(bare)}: no systemd: after a reboot in the middle, `nodectl rollback` puts the files back")


def _leave(
    state: Armed,
    playbooks: TrialPlaybooks,
    tried: Sequence[Host],
    *,
    what: str,
    lease_s: float,
    limit: str | None,
    note: Note,
) -> None:
    """Former values back on every host that may have been armed; what could not be done goes into the findings."""
    if state._leases is None or not tried:
        return
    leases, by_itself = state._leases, f"it puts its former values back by itself within {lease_s:g} s"
    try:
        leases.beat(tried)
        silent = leases.silent()
        state.findings += tuple(
            finding(name, Status.UNKNOWN, "former values", f"{why}; {by_itself}") for name, why in silent.items()
        )
        reached = [host for host in tried if host.name not in silent]
        if reached:
            _take_off(state, playbooks, reached, what=what, limit=limit)
    except KeyboardInterrupt:
        note(f"interrupted while former values were put back: each host does the rest by itself within {lease_s:g} s")
        raise
    except NodectlError as error:
        state.findings += tuple(
            finding(host.name, Status.UNKNOWN, "former values", f"{error.message}; {by_itself}", error.remedy)
            for host in tried
        )
    finally:
        leases.stop()


def _take_off(state: Armed, playbooks: TrialPlaybooks, hosts: Sequence[Host], *, what: str, limit: str | None) -> None:
    ran = playbooks.take_off(hosts, what)
    remedy = (
        "nodectl " + (f"-l '{limit}' " if limit else "") + f"rollback; what stood there is record {playbooks.trial}"
    )
    state.findings += tuple(replace(each, subject="former values", remedy=remedy) for each in ran.findings)
    for name, said in ran.answers.items():
        if said.get("state") == "by itself":
            when = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(said.get("at") or said.get("since") or 0))
            text = f"was put back by itself at {when}: {said.get('why', '')}"
            state.findings += (finding(name, Status.WARNING, "former values", text),)
