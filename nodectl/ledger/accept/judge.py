"""Verdicts on hosts from what the steps have seen."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from nodectl.ledger.accept.means import Means
from nodectl.model.acceptance import HostAcceptance, Seen, Step, StepState, node_verdict
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
    own = {name: [Status.OK] for name in step.hosts}
    shared: list[Finding] = []
    for finding in findings:
        if is_shared(finding):
            shared.append(finding)
        elif finding.host in own:
            own[finding.host].append(finding.status)
    guilty = {name for name, found in own.items() if worst(found) in (Status.FAILED, Status.UNKNOWN)}
    for finding in shared:
        ends = [name for name in (finding.hosts or (finding.host,)) if name in own] or list(own)
        if not guilty & set(ends):
            status = Status.UNKNOWN if finding.status is Status.FAILED else finding.status
            for name in ends:
                own[name].append(status)
    return {name: worst(found) for name, found in own.items()}


def is_shared(finding: Finding) -> bool:
    """Return whether it is about several hosts, or none by name, and not about one of them."""
    if finding.kind in _BETWEEN or not finding.host:
        return True
    return finding.kind != "host" and len(finding.hosts) > 1


def by_host(seen: Iterable[Seen]) -> dict[str, list[Seen]]:
    """Return what was seen of each host that is not fine, the worst first."""
    own: dict[str, list[Seen]] = {}
    for each in sorted(seen, key=lambda each: (each.finding.status.rank, is_shared(each.finding))):
        if each.finding.status in COUNTS:
            for host in {each.finding.host, *each.finding.hosts}:
                own.setdefault(host, []).append(each)
    return own


def leaving(step: Step, findings: Sequence[Finding], lost: Iterable[str]) -> set[str]:
    """Return the hosts that are not asked again after this step: who failed it, and who does not answer."""
    failed = {name for name, status in statuses(step, findings).items() if status is Status.FAILED}
    return failed | ({*lost} & set(step.hosts))


def verdicts(
    steps: Sequence[Step], seen: Sequence[Seen], left: Mapping[str, str], means: Mapping[str, Means]
) -> tuple[HostAcceptance, ...]:
    """Return a verdict for each host; `left` is the step after which a host was not asked again."""
    reasons = by_host(seen)
    by_step: dict[str, dict[str, Status]] = {}
    found_in: dict[str, list[Finding]] = {}
    for each in seen:
        found_in.setdefault(each.step, []).append(each.finding)
    for step in steps:
        findings = found_in.get(step.name, [])
        # of one that was left out for lack of partners there are remarks
        if step.state is StepState.DONE or findings:
            by_step[step.name] = statuses(step, findings)
    accepted = []
    for name in means:
        own = {step: found[name] for step, found in by_step.items() if name in found}
        # no step that is done has it: nothing is known
        verdict = node_verdict(own.values() if own else [Status.UNKNOWN])
        accepted.append(
            HostAcceptance(name, verdict, own, left.get(name, ""), tuple(reasons.get(name, ())), means[name].parts)
        )
    return tuple(accepted)
