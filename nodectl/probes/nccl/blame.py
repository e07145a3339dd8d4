"""Pairs of a collective as blame reads them: who is slow, host or path, by what was measured again."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from nodectl.blame.model import HostPair
from nodectl.model.finding import Finding
from nodectl.model.measurement import Measurement
from nodectl.probes.base import Note, ProbeResult
from nodectl.probes.inquire import inquire
from nodectl.probes.nccl.hosts import NAME

Measure = Callable[[Sequence[HostPair], str, int], ProbeResult]


def blamed(
    first: ProbeResult, measure: Measure, switches: Mapping[str, str], note: Note
) -> tuple[tuple[Finding, ...], ProbeResult]:
    """Findings and what was measured again; by one collective at its large size, never by an average over sizes."""
    judged = _judged(first.measurements)
    if not judged:
        return (), ProbeResult()
    collective, size = str(judged[0].conditions["collective"]), judged[0].conditions["size_bytes"]
    kept: list[Measurement] = []

    def again(pairs: Sequence[HostPair]) -> ProbeResult:
        found = measure(pairs, collective, size if isinstance(size, int) else 0)
        kept.extend(found.measurements)
        return ProbeResult(both_ways(found.measurements), found.findings)

    looked = ProbeResult(both_ways(judged), first.findings)
    slow, seen = inquire(NAME, looked, again, switches, note)
    # a collective has no direction: each pair stands once in the result
    stages = {(each.hosts, each.conditions["time_us"]): each.conditions.get("again") for each in seen.measurements}
    told = tuple(
        replace(each, conditions={**each.conditions, "again": stages.get((each.hosts, each.conditions["time_us"]))})
        for each in kept
    )
    return slow, ProbeResult(told, seen.findings)


def _judged(measurements: Sequence[Measurement]) -> list[Measurement]:
    """Of pairs, the first collective that has a large size."""
    large = [each for each in measurements if len(each.hosts) == 2 and each.conditions["verdict_size"] == "large"]
    return [each for each in large if each.conditions["collective"] == large[0].conditions["collective"]]


def both_ways(measurements: Sequence[Measurement]) -> tuple[Measurement, ...]:
    """Each pair once in either direction: a collective loads both, and blame knows only directions."""
    return tuple(each for one in measurements for each in (one, replace(one, hosts=one.hosts[::-1])))
