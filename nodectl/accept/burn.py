"""A burn-in: load again and again until the time is over, and looks at the hosts meanwhile; what grew is judged."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from statistics import median

from nodectl.common.counting import counted
from nodectl.common.units import time_text
from nodectl.errors import NodectlError
from nodectl.model.finding import Finding
from nodectl.model.host import Host
from nodectl.model.measurement import Measurement
from nodectl.model.status import Status
from nodectl.probes.base import Note, ProbeResult, host_finding
from nodectl.probes.registry import kind_of

Load = Callable[[float], ProbeResult]
LookAt = Callable[[Sequence[Host]], Sequence[Finding]]
# between two looks; of a short burn-in so many in all
_EVERY_S, _LEAST_LOOKS = 60.0, 6
# load is what these find: processes on GPUs, GPUs at work
_OF_THE_LOAD = ("gpu_processes", "hung")
# of the first rounds' figures, what the last ones may lack, with so many rounds at least
_FELL, _LEAST_ROUNDS = 0.9, 4


def burn(look: LookAt, loads: Sequence[Load], hosts: Sequence[Host], ends_at: float | None, note: Note) -> ProbeResult:
    """Return what was wrong in any round of load or look, each once with how often, and what became slower."""
    ends_at = time.monotonic() if ends_at is None else ends_at
    watch = _Watch(look, hosts, max(1.0, min(_EVERY_S, (ends_at - time.monotonic()) / _LEAST_LOOKS)))
    rounds: list[ProbeResult] = []
    watch.start()
    try:
        while time.monotonic() < ends_at and loads:
            results = [load(ends_at) for load in loads if time.monotonic() < ends_at]
            rounds.append(sum(results, ProbeResult()))
            note(f"burn-in: round {len(rounds)}, {time_text(max(0.0, ends_at - time.monotonic()))} left")
    finally:
        watch.stop()
    # the last round has what was left of the time, and may have been cut
    whole = rounds[:-1] or rounds
    findings = [
        *_folded([_without_budget(done.findings) for done in whole], "round"),
        *_folded(watch.looks, "look"),
        *_fallen(whole),
    ]
    return ProbeResult(tuple(rounds[-1].measurements) if rounds else (), tuple(findings))


class _Watch(threading.Thread):
    """Looks at the hosts while they work."""

    def __init__(self, look: LookAt, hosts: Sequence[Host], every_s: float) -> None:
        super().__init__(daemon=True)
        self.looks: list[Sequence[Finding]] = []
        self._look, self._hosts, self._every_s = look, hosts, every_s
        self._over = threading.Event()

    def run(self) -> None:
        """Look until it is stopped; a look that fails is followed by another."""
        while not self._over.wait(self._every_s):
            try:
                findings = self._look(self._hosts)
            except NodectlError as error:
                self.looks.append([Finding("", "burn-in", Status.UNKNOWN, actual=error.message, remedy=error.remedy)])
                continue
            self.looks.append([finding for finding in findings if finding.check not in _OF_THE_LOAD])

    def stop(self) -> None:
        """After the look that is being taken."""
        self._over.set()
        self.join()


def _without_budget(findings: Iterable[Finding]) -> list[Finding]:
    """Return the findings without those of a round that was cut by the budget: they say nothing of the hosts."""
    return [finding for finding in findings if finding.subject != "budget"]


def _folded(times: Sequence[Sequence[Finding]], word: str) -> list[Finding]:
    """Each finding that is not fine once, the worst of its kind, with how often it was seen."""
    seen: dict[tuple[object, ...], list[Finding]] = defaultdict(list)
    for findings in times:
        own = {}
        for finding in findings:
            if finding.status in (Status.FAILED, Status.UNKNOWN, Status.WARNING):
                own[finding.host, finding.check, finding.subject, finding.hosts] = finding
        for key, finding in own.items():
            seen[key].append(finding)
    folded = []
    for found in seen.values():
        worst = min(found, key=lambda finding: finding.status.rank)
        often = f"in {len(found)} of {counted(len(times), word)} under load"
        folded.append(replace(worst, evidence="; ".join(filter(None, [often, worst.evidence]))))
    return folded


def _fallen(rounds: Sequence[ProbeResult]) -> list[Finding]:
    """Figures of one host that are lower at the end than at the beginning."""
    if len(rounds) < _LEAST_ROUNDS:
        return []
    series: dict[tuple[object, ...], list[Measurement]] = defaultdict(list)
    for done in rounds:
        for measurement in done.measurements:
            if len(measurement.hosts) == 1:
                subject = kind_of(measurement.probe).subject(measurement.conditions)
                series[measurement.probe, measurement.hosts, measurement.direction, measurement.unit, subject].append(
                    measurement
                )
    part = len(rounds) // 4
    findings = []
    for measured in series.values():
        if len(measured) < _LEAST_ROUNDS:
            continue
        first, last = (median(each.value for each in some) for some in (measured[:part], measured[-part:]))
        one = measured[0]
        if kind_of(one.probe).lower_is_better(one.unit) or last >= _FELL * first:
            continue
        findings.append(
            host_finding(
                one.probe,
                one.hosts[0],
                Status.WARNING,
                f"{one.direction}: {100 * last / first:.0f} % of its first rounds in its last ones",
                "look at the host's temperatures and clocks, then at its fans, airflow and power",
                subject="slower under load",
                expected=f"about {first:.4g} {one.unit} all the time",
            )
        )
    return findings
