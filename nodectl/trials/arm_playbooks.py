"""A trial's runs of the playbooks: arm, put on, take off; what goes wrong on a host is a finding, no exception."""

from __future__ import annotations

import getpass
import os
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from nodectl import __version__
from nodectl.model.finding import Finding
from nodectl.model.host import Host
from nodectl.model.status import Status
from nodectl.probes.base import Note
from nodectl.provision import ProvisionRequest, ProvisionRun, TaskEvent, provision
from nodectl.trials.apply_settings import Setting, given
from nodectl.trials.arm_lease import FOLDER
from nodectl.trials.arm_signals import kept

CHECK = "trial"
# after it has acted a guard looks on for this share of the lease, for what a playbook still does
_SETTLE = 0.5


@dataclass(frozen=True, slots=True)
class Ran:
    """A finished run: what the hosts' own module answered, and findings on those that it did not succeed on."""

    answers: Mapping[str, Mapping[str, Any]]
    findings: tuple[Finding, ...]


@dataclass(frozen=True, slots=True)
class TrialPlaybooks:
    """Runs them under the trial's name, which is also that of the hosts' records."""

    trial: str
    sources: tuple[str, ...]
    forks: int
    become_password: str | None
    note: Note
    told: set[str] = field(default_factory=set)

    def arm(self, hosts: Sequence[Host], uids: Mapping[str, int], what: str, lease_s: float, force: bool) -> Ran:
        """Record what stands there and start a guard on each host."""
        variables = {
            "trial_uids": dict(uids),
            "trial_what": what,
            "trial_lease_s": lease_s,
            "trial_settle_s": lease_s * _SETTLE,
            "trial_force": force,
        }
        return self._run("trial_arm", hosts, variables, what)

    def put_on(self, hosts: Sequence[Host], setting: Setting) -> Ran:
        """The setting by tune.yml, looked at afterwards; its Python is the one that a guard takes away."""
        with given(setting, hosts) as (variables, inventories):
            variables["ansible_python_interpreter"] = f"{FOLDER}/{self.trial}/python3"
            return self._run("trial_on", hosts, variables, setting.label, inventories)

    def take_off(self, hosts: Sequence[Host], what: str) -> Ran:
        """Former values back, looked at, and the guards ended."""
        return self._run("trial_off", hosts, {}, what)

    def _run(
        self, playbook: str, hosts: Sequence[Host], variables: Mapping[str, Any], subject: str, more: Sequence[str] = ()
    ) -> Ran:
        identity = {"run": self.trial, "by": operator(), "nodectl": __version__}
        request = ProvisionRequest(
            playbook,
            (*self.sources, *more),
            limit=",".join(host.name for host in hosts),
            forks=max(1, min(self.forks, len(hosts))),
            become_password=self.become_password,
            variables={**variables, "run_identity": identity},
        )
        with kept():
            run = provision(request, _unheard)
        for text in dict.fromkeys(event.text for event in run.reports):
            if text not in self.told:  # the same at each turn
                self.told.add(text)
                self.note(text)
        return Ran(_answers(run), tuple(_findings(run, hosts, subject)))


def operator() -> str:
    """Login and machine, as the hosts' records name them."""
    try:
        login = os.environ.get("SUDO_USER") or getpass.getuser()
    except (KeyError, OSError):  # a uid without a name
        login = str(os.getuid())
    return f"{login}@{socket.gethostname()}"


def _unheard(event: TaskEvent) -> None:
    """What matters of a run is in its end."""


def _answers(run: ProvisionRun) -> dict[str, Mapping[str, Any]]:
    """{host: what node_trial said last}, notes of all its answers together."""
    found: dict[str, dict[str, Any]] = {}
    for answer in run.answers:
        said = answer.result.get("trial")
        if isinstance(said, Mapping):
            before = found.setdefault(answer.host, {"notes": []})
            before.update({**said, "notes": [*before["notes"], *said.get("notes", ())]})
    return dict(found)


def _findings(run: ProvisionRun, hosts: Sequence[Host], subject: str) -> list[Finding]:
    """One for each host on which a task failed or that was not reached."""
    found: dict[str, Finding] = {}
    for event in run.problems:
        status = Status.FAILED if event.outcome == "failed" else Status.UNKNOWN
        found.setdefault(event.host, finding(event.host, status, subject, f"{event.task}: {event.text}"))
    for host in hosts:
        tally = run.hosts.get(host.name)
        if host.name not in found and (tally is None or tally.failed or tally.unreachable):
            found[host.name] = finding(host.name, Status.UNKNOWN, subject, "Ansible says nothing about this host")
    return list(found.values())


def finding(host: str, status: Status, subject: str, actual: str, remedy: str = "") -> Finding:
    """A trial's own."""
    return Finding(host, CHECK, status, subject, actual=actual, remedy=remedy, kind="host", hosts=(host,))
