"""A trial's runs of the playbooks: arm, put on, take off.

What goes wrong on a host is a finding, no exception.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from nodectl import __version__
from nodectl.common.access import Access
from nodectl.common.interrupts import handlers_kept
from nodectl.common.node_paths import TRIALS
from nodectl.common.operator import operator
from nodectl.model.finding import Finding
from nodectl.model.host import Host
from nodectl.model.status import Status
from nodectl.model.trial import Side
from nodectl.probes.base import Note
from nodectl.provision.events import ProvisionRun, TaskEvent
from nodectl.provision.run import ProvisionRequest, provision
from nodectl.trials.arming.settings import given

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

    def put_on(self, hosts: Sequence[Host], side: Side) -> PlaybookRun:
        """Put the side's settings on by tune.yml, and verify them; its Python is the one that a guard takes away."""
        with given(side, hosts) as (variables, inventories):
            variables["ansible_python_interpreter"] = f"{TRIALS}/{self.trial}/python3"
            return self._run("trial_on", hosts, variables, side.label, inventories)

    def take_off(self, hosts: Sequence[Host], purpose: str) -> PlaybookRun:
        """Former values back, looked at, and the guards ended."""
        return self._run("trial_off", hosts, {}, purpose)

    def _run(
        self, playbook: str, hosts: Sequence[Host], variables: Mapping[str, Any], subject: str, more: Sequence[str] = ()
    ) -> PlaybookRun:
        identity = {"run": self.trial, "by": operator(), "nodectl": __version__}
        request = ProvisionRequest(
            playbook,
            (*self.sources, *more),
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
