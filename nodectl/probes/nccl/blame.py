"""Pairs of a collective as blame reads them: who is slow, host or path, by what was measured again."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from nodectl.model.finding import Finding
from nodectl.model.measurement import Measurement
from nodectl.model.status import Status
from nodectl.probes.base import Note, ProbeResult
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
    large = [row for row in first.measurements if len(row.hosts) == 2 and row.conditions["verdict_size"] == "large"]
    if not large:
        return (), ProbeResult()
    judged = [row for row in large if row.conditions["collective"] == large[0].conditions["collective"]]
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


def both_ways(measurements: Sequence[Measurement]) -> tuple[Measurement, ...]:
    """Each pair once in either direction: a collective loads both, and blame knows only directions."""
    return tuple(way for pair in measurements for way in (pair, replace(pair, hosts=pair.hosts[::-1])))


Case = tuple[str, int]
_BAD = (Status.FAILED, Status.UNKNOWN)
_REMEDY = "`nodectl probe nccl --scope pairs` measures pairs of these hosts, and names who fails"


def without_shared_blame(result: ProbeResult, cases: Sequence[Case]) -> ProbeResult:
    """Return the result, with nobody to blame for a failure that several hosts saw, or none names as its own.

    `cases` are all that were asked for.
    """
    measured = [(each.conditions["collective"], each.conditions["size_bytes"]) for each in result.measurements]
    # ranks that ended and results that are wrong; not what is said of the way that the data went
    subjects = {"", *(f"{name} {size} B" for name, size in (*measured, *cases))}
    bad = [finding for finding in result.findings if finding.status in _BAD and finding.kind != "incomplete"]
    failures = [finding for finding in bad if finding.subject in subjects]
    if len({failure.host for failure in failures if failure.kind == "host"}) == 1:
        return result
    findings = (
        replace(finding, kind="", action="none", remedy=_REMEDY) if finding in failures else finding
        for finding in result.findings
    )
    return ProbeResult(result.measurements, tuple(findings))
