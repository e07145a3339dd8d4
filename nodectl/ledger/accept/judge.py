"""Verdicts on hosts from what the steps have seen."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from nodectl.ledger.accept.means import Means
from nodectl.ledger.history.compare import losses
from nodectl.model.acceptance import Acceptance, HostAcceptance, Seen, Step, StepState, node_verdict
from nodectl.model.finding import Finding
from nodectl.model.status import Status, worst

# a finding of these kinds is about what lies between its hosts
_BETWEEN = ("path", "direction")
# what makes a verdict, and is kept
COUNTS = (Status.FAILED, Status.UNKNOWN, Status.WARNING)


def statuses(step: Step, findings: Sequence[Finding]) -> dict[str, Status]:
    """Return the status of each host of a step that is done.

    What is wrong between hosts, or with a group of them, convicts none: it cannot be told of any of its ends, unless
    one of them is known to be at fault, and explains it.
    """
    by_name = {name: [Status.OK] for name in step.hosts}
    shared: list[Finding] = []
    for finding in findings:
        if is_shared(finding):
            shared.append(finding)
        elif finding.host in by_name:
            by_name[finding.host].append(finding.status)
    guilty = {name for name, its in by_name.items() if worst(its) in (Status.FAILED, Status.UNKNOWN)}
    for finding in shared:
        ends = [name for name in (finding.hosts or (finding.host,)) if name in by_name] or list(by_name)
        if not guilty & set(ends):
            status = Status.UNKNOWN if finding.status is Status.FAILED else finding.status
            for name in ends:
                by_name[name].append(status)
    return {name: worst(its) for name, its in by_name.items()}


def is_shared(finding: Finding) -> bool:
    """Return whether it is about several hosts, or none by name, and not about one of them."""
    if finding.kind in _BETWEEN or not finding.host:
        return True
    return finding.kind != "host" and len(finding.hosts) > 1


def by_host(seen: Iterable[Seen]) -> dict[str, list[Seen]]:
    """Return what was seen of each host that is not fine, the worst first."""
    remarks: dict[str, list[Seen]] = {}
    for remark in sorted(seen, key=lambda remark: (remark.finding.status.rank, is_shared(remark.finding))):
        if remark.finding.status in COUNTS:
            for host in {remark.finding.host, *remark.finding.hosts}:
                remarks.setdefault(host, []).append(remark)
    return remarks


def leaving(step: Step, findings: Sequence[Finding], lost: Iterable[str]) -> set[str]:
    """Return the hosts that are not asked again after this step: who failed it, and who does not answer."""
    failed = {name for name, status in statuses(step, findings).items() if status is Status.FAILED}
    return failed | ({*lost} & set(step.hosts))


def compared(
    acceptance: Acceptance, befores: Mapping[str, Acceptance], tolerance_percent: float, means: Mapping[str, Means]
) -> Acceptance:
    """Return the acceptance, judged also by what each host lost since the acceptance in `befores`."""
    lost = [
        remark
        for before in {before.id: before for before in befores.values()}.values()
        for remark in losses(before, acceptance, tolerance_percent)
        if not remark.finding.host or befores.get(remark.finding.host) is before
    ]
    seen = (*acceptance.seen, *lost)
    left = {row.host: row.left_after for row in acceptance.hosts}
    return replace(acceptance, seen=seen, hosts=verdicts(acceptance.steps, seen, left, means))


def verdicts(
    steps: Sequence[Step], seen: Sequence[Seen], left: Mapping[str, str], means: Mapping[str, Means]
) -> tuple[HostAcceptance, ...]:
    """Return a verdict for each host; `left` is the step after which a host was not asked again."""
    reasons = by_host(seen)
    by_step: dict[str, dict[str, Status]] = {}
    found_in: dict[str, list[Finding]] = {}
    for remark in seen:
        found_in.setdefault(remark.step, []).append(remark.finding)
    for step in steps:
        findings = found_in.get(step.name, [])
        # of one that was left out for lack of partners there are remarks
        if step.state is StepState.DONE or findings:
            by_step[step.name] = statuses(step, findings)
    accepted = []
    for name in means:
        of_host = {step: step_statuses[name] for step, step_statuses in by_step.items() if name in step_statuses}
        # no step that is done has it: nothing is known
        verdict = node_verdict(of_host.values() if of_host else [Status.UNKNOWN])
        accepted.append(
            HostAcceptance(
                *(name, verdict, of_host, left.get(name, ""), tuple(reasons.get(name, ()))),
                means[name].serial,
                means[name].devices,
            )
        )
    return tuple(accepted)
