"""The end of a play: hosts judged and compared as `nodectl health` does, by what tasks ran there."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from nodectl.checks.catalogue import checks, judgements
from nodectl.checks.check import Check
from nodectl.checks.fleet.compare import Member, compare
from nodectl.checks.fleet.names import Named
from nodectl.checks.judge import PROFILES
from nodectl.health.host import VERIFY, HostHealth, Order, judge_answer, order_of
from nodectl.health.policy import policy_of
from nodectl.model.finding import Finding
from nodectl.model.host import Host
from nodectl.model.status import Status
from nodectl.recordings.collect import new_nonce, read_frames, script

# importing torch from a cold disk alone may take a minute
_BUDGET_S = 400


@dataclass(frozen=True, slots=True)
class Verification:
    """One host to be verified: `script` is run there by a shell, and `findings` reads what it printed."""

    order: Order
    roles: frozenset[str] | None
    nonce: str = field(default_factory=new_nonce)

    @property
    def script(self) -> str:
        """For `sh -s`; it changes nothing."""
        return script(self.order.commands, self.nonce, budget_s=_BUDGET_S).decode()

    def findings(self, output: bytes, *, asked: float, ended: float, heard: float) -> tuple[Finding, ...]:
        """Return it as of `nodectl health`, of the chosen roles; ParseError if the output is not whole.

        `asked` and `heard` are our clock before and after the task, `ended` is the host's when the script had ended:
        only what is left of the task without the script makes the comparison of the clocks uncertain.
        """
        return self.chosen(self.judged(output, asked=asked, ended=ended, heard=heard))

    def judged(self, output: bytes, *, asked: float, ended: float, heard: float) -> HostHealth:
        """All findings, whatever the roles, and what the host brings to the comparison; ParseError as `findings`."""
        commands = {command.key: command for command in self.order.commands}
        name = self.order.host.name
        recording = read_frames(name, output, commands, self.nonce, asked=asked, heard=heard)
        ran_s = 0.0 if recording.clock_offset_s is None else ended - (recording.clock_offset_s + heard)
        error_s = max(0.0, heard - asked - ran_s)
        recording = replace(recording, clock_offset_s=ended - heard, clock_error_s=error_s)
        return judge_answer(self.order, recording)

    def chosen(self, health: HostHealth) -> tuple[Finding, ...]:
        """Return the findings of the chosen roles, as the site's policy has them."""
        today = datetime.now(UTC).date()
        return tuple(
            self.order.policy.applied(finding, today) for finding in health.findings if self._is_asked(finding)
        )

    def wrong(self, findings: Sequence[Finding]) -> list[str]:
        """Lines on what failed, and on profiles that cannot be used: without them the host passes nothing."""
        refused = self.order.wanted.refused
        unusable = {
            finding
            for finding in findings
            if refused and (finding.check, finding.status) == (PROFILES.id, Status.UNKNOWN)
        }
        return lines(
            [finding for finding in findings if finding.status is Status.FAILED or finding in unusable], tuple(Status)
        )

    def _is_asked(self, finding: Finding) -> bool:
        if self.roles is None:
            return True
        # profiles that cannot be judged by are no pass of any role
        check = checks().get(finding.check)
        if finding.check == PROFILES.id:
            return finding.status in (Status.FAILED, Status.UNKNOWN)
        return check is not None and not self.roles.isdisjoint(check.roles_of.get(finding.subject, check.roles))


def verification(host: Host, extra_dirs: Sequence[Path], roles: Collection[str] | None) -> Verification:
    """Return what is to be asked of `host`, and judged: the checks that name one of `roles`, all where None."""
    if roles is None:
        return Verification(order_of(host, {}, extra_dirs, occasions=VERIFY), None)
    chosen = frozenset(roles)
    judged_by = [judge for judge in judgements() if any(chosen & _roles_of(check) for check in judge.checks)]
    return Verification(order_of(host, {}, extra_dirs, occasions=VERIFY, judged_by=judged_by), chosen)


def _roles_of(check: Check) -> frozenset[str]:
    return frozenset([*check.roles, *(role for roles in check.roles_of.values() for role in roles)])


def chosen_roles(run: Collection[str], skipped: Collection[str]) -> tuple[str, ...] | None:
    """Return the roles that a run's tags name; None if they name all."""
    all_roles = {role for check in checks().values() for role in _roles_of(check)}
    chosen = all_roles if {"all", "tagged", "always"} & set(run) or not run else all_roles & set(run)
    return None if chosen == all_roles and not all_roles & set(skipped) else tuple(sorted(chosen - set(skipped)))


def compared(members: Sequence[Member], variables: Mapping[str, Mapping[str, Any]]) -> dict[str, list[Finding]]:
    """Return, by host, what differs where most are alike, and what two have; `variables` hold each host's policy."""
    today = datetime.now(UTC).date()
    findings_by_host: dict[str, list[Finding]] = {member.host: [] for member in members}
    for finding in compare(members):
        policy = policy_of(finding.host, variables[finding.host])
        findings_by_host[finding.host].append(policy.applied(finding, today))
    return findings_by_host


def member_document(member: Member) -> dict[str, Any]:
    """Return what a host brings to the comparison, as JSON has it: it is carried from its own task to that of all."""
    names = member.names and {"book": dict(member.names.book), "own": sorted(member.names.own)}
    return {
        "host": member.host,
        "group": member.group,
        "values": [[*key, dict(values)] for key, values in member.values.items()],
        "looked": sorted(member.looked),
        "claims": [[*claim, place] for claim, place in member.claims.items()],
        "machine": member.machine,
        "copied": member.copied,
        "names": names,
    }


def member_of(document: Mapping[str, Any]) -> Member:
    """Return the member of such a document."""
    names = document["names"]
    return Member(
        document["host"],
        document["group"],
        {(check, which, kind): values for check, which, kind, values in document["values"]},
        frozenset(document["looked"]),
        {(kind, identity): place for kind, identity, place in document["claims"]},
        document["machine"],
        document["copied"],
        names and Named({name: tuple(book) for name, book in names["book"].items()}, frozenset(names["own"])),
    )


def lines(findings: Sequence[Finding], statuses: Collection[Status]) -> list[str]:
    """Return those of the statuses as lines for people, the worst first."""
    chosen = [finding for finding in findings if finding.status in statuses]
    return [_line(finding) for finding in sorted(chosen, key=lambda finding: finding.status.rank)]


def _line(finding: Finding) -> str:
    name = ": ".join(filter(None, (finding.check, finding.subject)))
    parts = [f"{finding.status} {name}: {finding.actual}"]
    if finding.expected:
        parts.append(f"expected {finding.expected}")
    if finding.remedy:
        parts.append(f"try: {finding.remedy}")
    return "; ".join(parts)
