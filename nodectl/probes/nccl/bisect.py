"""A collective over many hosts that fails where nobody is to blame by its own word: who makes it fail, by groups."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from nodectl.common.units import MIB
from nodectl.model.finding import Finding
from nodectl.model.status import Status
from nodectl.probes.base import Note, ProbeResult
from nodectl.probes.bisect import Isolation, isolate
from nodectl.probes.nccl.hosts import NAME

# fewer hosts than two pairs cannot be halved
LEAST_HOSTS = 4
_BAD = (Status.FAILED, Status.UNKNOWN)

Case = tuple[str, int]
# results of groups of hosts, one a group, at one case
Measure = Callable[[Sequence[Sequence[str]], Case], Sequence[ProbeResult]]


def settled(
    result: ProbeResult, hosts: Sequence[str], cases: Sequence[Case], measure: Measure, note: Note
) -> ProbeResult:
    """The result, and where nobody could be named for its failure, whom smaller groups name.

    `cases` are all that were asked for, in their order.
    """
    failures = _failures(result, cases)
    named = {each.host for each in failures if each.kind == "host"}
    case = failing_case(result, cases)
    # a run that was merely cut short has no failures
    if not failures or case is None or len(hosts) < LEAST_HOSTS or len(named) == 1:
        return result
    note(f"nccl: {_said(case)} fails over {len(hosts)} hosts and nobody can be named: in smaller groups again")

    def fails(groups: Sequence[Sequence[str]]) -> list[bool]:
        return [failing_case(each, [case]) is not None for each in measure(groups, case)]

    found = isolate(hosts, fails)
    kept = tuple(_without_blame(each) if each in failures else each for each in result.findings)
    return ProbeResult(result.measurements, (*kept, *_findings(found, hosts, case)))


def failing_case(result: ProbeResult, cases: Sequence[Case]) -> Case | None:
    """The first case with a wrong result, else the one at which a run that is incomplete ended."""
    told = _measured(result)
    wrong = [case for case, each in zip(told, result.measurements, strict=True) if each.conditions.get("wrong")]
    if wrong and isinstance(wrong[0][1], int):
        return wrong[0][0], wrong[0][1]
    if all(each.kind != "incomplete" for each in result.findings):
        return None
    # ranks share a size evenly, so that it may be a little smaller than asked for: the number of cases counts
    done = {name: sum(1 for each, _ in told if each == name) for name, _ in cases}
    lacking = {each.subject for each in result.findings if each.status is Status.SKIPPED}
    asked: dict[str, int] = {}
    for name, size in cases:
        if name in lacking:
            continue
        asked[name] = asked.get(name, 0) + 1
        if asked[name] > done[name]:
            return name, size
    return cases[0] if cases else None


def _failures(result: ProbeResult, cases: Sequence[Case]) -> list[Finding]:
    """Ranks that ended and results that are wrong; not what is said of the way that the data went."""
    subjects = {"", *(f"{name} {size} B" for name, size in _measured(result)), *(f"{n} {size} B" for n, size in cases)}
    bad = [each for each in result.findings if each.status in _BAD and each.kind != "incomplete"]
    return [each for each in bad if each.subject in subjects]


def _measured(result: ProbeResult) -> list[tuple[str, object]]:
    return [(str(each.conditions["collective"]), each.conditions["size_bytes"]) for each in result.measurements]


def _without_blame(finding: Finding) -> Finding:
    """What several hosts saw is no reason to drain them all."""
    return replace(finding, kind="", action="none", remedy="seen here, and on others, too: see who is named below")


def _findings(found: Isolation, hosts: Sequence[str], case: Case) -> list[Finding]:
    took = f"{found.tests} smaller groups"
    if found.culprits:
        actual = f"{_said(case)} fails in groups with it and passes in those without it, {took}"
        remedy = "take it out of the fleet, run the probe again, and look at it by --scope node and `nodectl health`"
        return [
            Finding(
                name, NAME, Status.FAILED, "group", "drain", "", actual, remedy, kind="host", hosts=(name,), evidence=""
            )
            for name in found.culprits
        ]
    if found.only_together:
        actual = (
            f"{_said(case)} fails over {len(found.smallest)} hosts and passes over fewer, whichever they are ({took})"
        )
        remedy = "look for what runs out: descriptors and memlock of the login, connections that a firewall tracks"
    else:
        actual = f"{_said(case)} failed over {len(hosts)} hosts, but no part of them fails again ({took})"
        remedy = "run it again: what comes and goes may be a link that resets (`nodectl health` counts those)"
    return [Finding(hosts[0], NAME, Status.FAILED, "group", "none", "", actual, remedy, hosts=tuple(found.smallest))]


def _said(case: Case) -> str:
    name, size = case
    return f"{name} of {size // MIB} MiB" if size and size % MIB == 0 else f"{name} of {size} B"
