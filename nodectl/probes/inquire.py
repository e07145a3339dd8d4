"""Carries an inquiry out: what looks slow after the first look is measured again, then blamed or not."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from nodectl.blame.findings import readings_of, slow_findings, two_hosts
from nodectl.blame.inquiry import Inquiry
from nodectl.blame.model import HostPair
from nodectl.common.counting import counted
from nodectl.common.units import time_text
from nodectl.model.finding import Finding
from nodectl.probes.base import Note, ProbeResult

Measure = Callable[[Sequence[HostPair]], ProbeResult]


def inquire(
    probe: str,
    first: ProbeResult,
    measure: Measure,
    switches: Mapping[str, str],
    note: Note,
    round_s: float | None = None,
    least_effect: float = 0.0,
) -> tuple[tuple[Finding, ...], ProbeResult]:
    """Findings for slow hosts and paths, and what was measured again for them: nothing where no pair looks slow.

    `measure` does one round of pairs, which took about `round_s` before; more is better. `least_effect`
    is as Inquiry has it.
    """
    hosts = {name for measurement in first.measurements for name in measurement.hosts}
    if len(hosts) < 2:
        return (), ProbeResult()
    if len(hosts) == 2:
        note(f"{probe}: only two hosts: a slow host and a slow path look the same, and only a third host could tell")
        return two_hosts(probe, first.measurements), ProbeResult()
    inquiry = Inquiry(switches, least_effect)
    inquiry.add(readings_of(first.measurements))
    again = ProbeResult()
    while rounds := inquiry.next_rounds():
        takes = "" if round_s is None else f", about {time_text(round_s * len(rounds))}"
        count = f"{counted(len(rounds), 'round')}{takes}"
        note(f"{probe}: some pairs look slow and are measured again: {count}, healthy pairs beside them")
        for pairs in rounds:
            second = measure(pairs)
            if second == ProbeResult():
                note(f"{probe}: no time is left to measure them again")
                return _findings(probe, first, inquiry), again
            marked = tuple(measurement.with_conditions(again=inquiry.stage) for measurement in second.measurements)
            known = (*first.findings, *again.findings)
            again += ProbeResult(marked, tuple(finding for finding in second.findings if finding not in known))
            inquiry.add(readings_of(marked))
    return _findings(probe, first, inquiry), again


def _findings(probe: str, first: ProbeResult, inquiry: Inquiry) -> tuple[Finding, ...]:
    guilty = {name for finding in first.findings if finding.kind == "host" for name in finding.hosts}
    return slow_findings(probe, inquiry.verdict(), first.measurements[0].unit, guilty)
