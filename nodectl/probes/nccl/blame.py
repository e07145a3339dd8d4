"""Pairs of a collective as blame reads them: who is slow, host or path, by what was measured again."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from nodectl.common.counting import counted
from nodectl.common.units import MIB
from nodectl.model.finding import Finding
from nodectl.model.measurement import Measurement
from nodectl.model.status import Status
from nodectl.probes.base import Note, ProbeResult, host_finding
from nodectl.probes.blame.findings import inquire
from nodectl.probes.blame.fit import HostPair
from nodectl.probes.nccl.fleet import NAME

MeasurePairs = Callable[[Sequence[HostPair], str, int], ProbeResult]


def blamed(
    first: ProbeResult, measure: MeasurePairs, switches: Mapping[str, str], note: Note, least_effect: float = 0.0
) -> tuple[tuple[Finding, ...], ProbeResult]:
    """Return findings and what was measured again; by one collective at its large size, never by an average over sizes.

    `least_effect` is as Inquiry has it.
    """
    judged = _judged(first.measurements)
    if not judged:
        return (), ProbeResult()
    collective, size = str(judged[0].conditions["collective"]), judged[0].conditions["size_bytes"]
    kept: list[Measurement] = []

    def again(pairs: Sequence[HostPair]) -> ProbeResult:
        second = measure(pairs, collective, size if isinstance(size, int) else 0)
        kept.extend(second.measurements)
        return ProbeResult(both_ways(second.measurements), second.findings)

    looked = ProbeResult(both_ways(judged), first.findings)
    slow, seen = inquire(NAME, looked, again, switches, note, least_effect=least_effect)
    # a collective has no direction: each pair stands once in the result
    stages = {
        (measurement.hosts, measurement.conditions["time_us"]): measurement.conditions.get("again")
        for measurement in seen.measurements
    }
    marked = [
        measurement.with_conditions(again=stages.get((measurement.hosts, measurement.conditions["time_us"])))
        for measurement in kept
    ]
    return slow, ProbeResult(tuple(marked), seen.findings)


def _judged(measurements: Sequence[Measurement]) -> list[Measurement]:
    """Return the measurements of pairs of the first collective that has a large size."""
    large = [
        measurement
        for measurement in measurements
        if len(measurement.hosts) == 2 and measurement.conditions["verdict_size"] == "large"
    ]
    return [pair for pair in large if pair.conditions["collective"] == large[0].conditions["collective"]]


def both_ways(measurements: Sequence[Measurement]) -> tuple[Measurement, ...]:
    """Each pair once in either direction: a collective loads both, and blame knows only directions."""
    return tuple(way for pair in measurements for way in (pair, replace(pair, hosts=pair.hosts[::-1])))


# whether each of these groups fails; groups of one call have no host in common and can run at once
Fails = Callable[[Sequence[Sequence[str]]], Sequence[bool]]
_PARTS = 4


@dataclass(frozen=True, slots=True)
class Isolation:
    """`culprits` make each group fail that they are in; none where `only_together`: the number alone matters.

    `smallest` is the smallest group known to fail, `calls` and `tests` what it took.
    """

    culprits: tuple[str, ...]
    smallest: tuple[str, ...]
    only_together: bool
    calls: int
    tests: int


def isolate(hosts: Sequence[str], fails: Fails, least: int = 2) -> Isolation:
    """Return who makes this group fail, in about 2 log2(n) calls; `hosts` must fail as a whole.

    No group smaller than `least` is tested: a collective needs two. A host found in a group of the least size is
    tested with hosts of groups that passed.
    """
    return _Search(tuple(hosts), fails, least).run()


class _Search:
    def __init__(self, hosts: tuple[str, ...], fails: Fails, least: int) -> None:
        self.hosts, self.fails, self.least = hosts, fails, least
        self.calls = self.tests = 0
        self.smallest = hosts
        self.good: list[str] = []

    def run(self) -> Isolation:
        """Halves first; where both pass, the fault needs a large group, and parts are left out of it."""
        culprits: list[str] = []
        failing = [self.hosts]
        while failing:
            groups = [half for group in failing for half in _halves(group, self.least)]
            single = [group for group in failing if not _halves(group, self.least)]
            for group in single:
                culprits += self._single_out(group)
            if not groups:
                break
            bad = self._ask(groups)
            failing = [group for group, failed in zip(groups, bad, strict=True) if failed]
            self.good += [name for group, failed in zip(groups, bad, strict=True) if not failed for name in group]
            if not failing and not culprits:
                return self._left_out()
        return self._done(culprits)

    def _single_out(self, group: Sequence[str]) -> list[str]:
        """Return the hosts of a failing group, too small to halve, that fail with good hosts, too."""
        fresh = [name for name in self.good if name not in group]
        if len(group) == 1:
            return list(group)
        if len(fresh) < self.least - 1:
            return list(group)
        culprits = []
        for name in group:
            if self._ask([(name, *fresh[: self.least - 1])])[0]:
                culprits.append(name)
        # it fails in this company alone
        return culprits or list(group)

    def _left_out(self) -> Isolation:
        """Narrow down the part without which the whole passes, where the whole fails and its halves pass."""
        suspects = self.hosts
        while len(suspects) > 1:
            parts = _parts(suspects, min(_PARTS, len(suspects)))
            without = [tuple(name for name in self.hosts if name not in part) for part in parts]
            passing = [part for part, rest in zip(parts, without, strict=True) if not self._ask([rest])[0]]
            if len(passing) != 1:
                # it passes without any part, or fails without any: no one is in all that fails
                return self._done([], only_together=len(passing) > 1)
            (suspects,) = passing
        return self._done(list(suspects))

    def _ask(self, groups: Sequence[Sequence[str]]) -> list[bool]:
        self.calls += 1
        self.tests += len(groups)
        failures = list(self.fails(groups))
        for group, failed in zip(groups, failures, strict=True):
            if failed and len(group) < len(self.smallest):
                self.smallest = tuple(group)
        return failures

    def _done(self, culprits: Sequence[str], *, only_together: bool = False) -> Isolation:
        return Isolation(tuple(dict.fromkeys(culprits)), self.smallest, only_together, self.calls, self.tests)


def _halves(group: Sequence[str], least: int) -> list[tuple[str, ...]]:
    """Two halves of at least that size; none where it is too small for that."""
    middle = len(group) // 2
    return [tuple(group[:middle]), tuple(group[middle:])] if middle >= least else []


def _parts(group: Sequence[str], count: int) -> list[tuple[str, ...]]:
    edges = [round(number * len(group) / count) for number in range(count + 1)]
    return [tuple(group[a:b]) for a, b in pairwise(edges)]


# fewer hosts than two pairs cannot be halved
LEAST_HOSTS = 4
_BAD = (Status.FAILED, Status.UNKNOWN)

Case = tuple[str, int]
# results of groups of hosts, one a group, at one case
Measure = Callable[[Sequence[Sequence[str]], Case], Sequence[ProbeResult]]


def settled(
    result: ProbeResult, hosts: Sequence[str], cases: Sequence[Case], measure: Measure, note: Note
) -> ProbeResult:
    """Return the result, and where no host could be named for its failure, those that smaller groups name.

    `cases` are all that were asked for, in their order.
    """
    failures = _failures(result, cases)
    named = {failure.host for failure in failures if failure.kind == "host"}
    case = failing_case(result, cases)
    # a run that was merely cut short has no failures
    if not failures or case is None or len(hosts) < LEAST_HOSTS or len(named) == 1:
        return result
    note(f"nccl: {_case_text(case)} fails over {len(hosts)} hosts and nobody can be named: in smaller groups again")

    def fails(groups: Sequence[Sequence[str]]) -> list[bool]:
        return [failing_case(result, [case]) is not None for result in measure(groups, case)]

    isolation = isolate(hosts, fails)
    kept = tuple(_without_blame(finding) if finding in failures else finding for finding in result.findings)
    return ProbeResult(result.measurements, (*kept, *_findings(isolation, hosts, case)))


def failing_case(result: ProbeResult, cases: Sequence[Case]) -> Case | None:
    """Return the first case with a wrong result, else the one at which a run that is incomplete ended."""
    measured = _measured(result)
    runs = zip(measured, result.measurements, strict=True)
    wrong = [case for case, measurement in runs if measurement.conditions.get("wrong")]
    if wrong and isinstance(wrong[0][1], int):
        return wrong[0][0], wrong[0][1]
    if all(finding.kind != "incomplete" for finding in result.findings):
        return None
    # ranks share a size evenly, so that it may be a little smaller than asked for: the number of cases counts
    done = {name: sum(1 for collective, _ in measured if collective == name) for name, _ in cases}
    lacking = {finding.subject for finding in result.findings if finding.status is Status.SKIPPED}
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
    bad = [finding for finding in result.findings if finding.status in _BAD and finding.kind != "incomplete"]
    return [finding for finding in bad if finding.subject in subjects]


def _measured(result: ProbeResult) -> list[tuple[str, object]]:
    return [
        (str(measurement.conditions["collective"]), measurement.conditions["size_bytes"])
        for measurement in result.measurements
    ]


def _without_blame(finding: Finding) -> Finding:
    """Return what several hosts saw is no reason to drain them all."""
    return replace(finding, kind="", action="none", remedy="seen here, and on others, too: see who is named below")


def _findings(isolation: Isolation, hosts: Sequence[str], case: Case) -> list[Finding]:
    took = f"{isolation.tests} smaller groups"
    if isolation.culprits:
        actual = f"{_case_text(case)} fails in groups with it and passes in those without it, {took}"
        remedy = "take it out of the fleet, run the probe again, and look at it by --scope node and `nodectl health`"
        return [
            host_finding(NAME, name, Status.FAILED, actual, remedy, subject="group", action="drain")
            for name in isolation.culprits
        ]
    if isolation.only_together:
        count = len(isolation.smallest)
        actual = (
            f"{_case_text(case)} fails over {counted(count, 'host')} and passes over fewer, whichever they are ({took})"
        )
        remedy = "look for what runs out: descriptors and memlock of the login, connections that a firewall tracks"
    else:
        actual = (
            f"{_case_text(case)} failed over {counted(len(hosts), 'host')}, but no part of them fails again ({took})"
        )
        remedy = "run it again: what comes and goes may be a link that resets (`nodectl health` counts those)"
    return [Finding(hosts[0], NAME, Status.FAILED, "group", "none", "", actual, remedy, hosts=isolation.smallest)]


def _case_text(case: Case) -> str:
    name, size = case
    return f"{name} of {size // MIB} MiB" if size and size % MIB == 0 else f"{name} of {size} B"
