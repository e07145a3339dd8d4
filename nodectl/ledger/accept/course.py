"""The course of an acceptance: a host that fails a step leaves; the burn-in under load."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Any

from nodectl.common.counting import counted
from nodectl.common.nodeset import fold
from nodectl.common.units import time_text
from nodectl.errors import NodectlError, ParseError, UsageError
from nodectl.facts.parsers.nvidia.dcgmi import DiagTest, parse_dcgmi_diag
from nodectl.ledger.accept.judge import COUNTS, leaving, verdicts
from nodectl.ledger.accept.means import Means
from nodectl.ledger.accept.steps import AFTER, BURN, DIAG, HEALTH, Level, Scope, StepKind, step_kind
from nodectl.model.acceptance import Acceptance, Seen, Step, StepState, Taken
from nodectl.model.finding import Finding
from nodectl.model.host import Host
from nodectl.model.measurement import Measurement
from nodectl.model.result import CommandResult, Outcome
from nodectl.model.status import Status
from nodectl.probes.base import Note, ProbeResult, host_finding
from nodectl.probes.lost import Loss, Watched
from nodectl.probes.registry import declarations, kind_of
from nodectl.probes.series import run_probes
from nodectl.transport.base import Transport
from nodectl.transport.fanout import fan_out

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
        *_folded([[finding for finding in done.findings if finding.subject != "budget"] for done in whole], "round"),
        *_folded(watch.looks, "look"),
        *_fallen(whole),
    ]
    return ProbeResult(tuple(rounds[-1].measurements) if rounds else (), tuple(findings))


class _Watch(threading.Thread):
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


def _folded(times: Sequence[Sequence[Finding]], word: str) -> list[Finding]:
    seen: dict[tuple[object, ...], list[Finding]] = defaultdict(list)
    for findings in times:
        unlike = {}
        for finding in findings:
            if finding.status in (Status.FAILED, Status.UNKNOWN, Status.WARNING):
                unlike[finding.host, finding.check, finding.subject, finding.hosts] = finding
        for key, finding in unlike.items():
            seen[key].append(finding)
    folded = []
    for alike in seen.values():
        worst = min(alike, key=lambda finding: finding.status.rank)
        often = f"in {len(alike)} of {counted(len(times), word)} under load"
        folded.append(replace(worst, evidence="; ".join(filter(None, [often, worst.evidence]))))
    return folded


def _fallen(rounds: Sequence[ProbeResult]) -> list[Finding]:
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
        first, last = (median(taken.value for taken in end) for end in (measured[:part], measured[-part:]))
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


_NAME = "dcgm"
# by run level; the longest that NVIDIA speaks of, and as much again
_DEADLINES_S = {1: 300.0, 2: 900.0, 3: 3600.0}
_STATUSES = {"Fail": Status.FAILED, "Warn": Status.WARNING}
_REMEDY = "stop what runs on its GPUs, reset them or reboot, and run `dcgmi diag` again; then ask the vendor"


def diagnose(transport: Transport, hosts: Sequence[Host], run: int, forks: int) -> ProbeResult:
    """`dcgmi diag -r RUN -j` on every host at once; a finding for each test that did not pass."""
    argv = ["dcgmi", "diag", "-r", str(run), "-j"]

    def ask(host: Host) -> CommandResult:
        return transport.run(host, argv, timeout_s=_DEADLINES_S[run])

    answers = dict(fan_out(hosts, ask, forks))
    return ProbeResult(findings=tuple(finding for host in hosts for finding in told(host.name, answers[host])))


def told(host: str, answer: CommandResult) -> list[Finding]:
    """Return the findings of one host's report; unknown if there is none."""
    if answer.outcome is not Outcome.RAN:
        return [host_finding(_NAME, host, Status.UNKNOWN, answer.error or str(answer.outcome), answer.remedy)]
    try:
        report = parse_dcgmi_diag(answer.stdout or answer.stderr)
    except ParseError as error:
        # a diagnosis that found something ends with another status, and has its report
        return [host_finding(_NAME, host, Status.UNKNOWN, f"dcgmi diag: {error.message}", error.remedy)]
    return [finding for test in report.tests for finding in _of_test(host, test)]


def _of_test(host: str, test: DiagTest) -> list[Finding]:
    """One for each GPU that did not pass; one for the host where the test names no GPU."""
    wrong = {gpu: word for gpu, word in test.gpus.items() if word in _STATUSES}
    if not wrong and test.status in _STATUSES:
        wrong = {"": test.status}
    return [
        host_finding(
            _NAME,
            host,
            _STATUSES[word],
            test.text or word.lower(),
            _REMEDY,
            subject=f"GPU {gpu}, {test.name}" if gpu else test.name,
            action="drain" if _STATUSES[word] is Status.FAILED else "none",
            expected="pass",
        )
        for gpu, word in sorted(wrong.items())
    ]


_REACH = "reach"
# a step may be late by so much before what is left of a budget is divided again
_NO_TIME_S = 1.0


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Hold what a course needs of the outside: the hosts, the way to them, and how health is looked at."""

    hosts: Mapping[str, Host]
    means: Mapping[str, Means]
    transport: Watched
    look: LookAt
    note: Note
    forks: int
    profile_dirs: tuple[Path, ...] = ()


@dataclass(slots=True)
class Course:
    """An acceptance on its way; `keep` is given it whole after each step."""

    around: Surroundings
    acceptance: Acceptance
    keep: Callable[[Acceptance], None]
    limited: bool = False
    _left: dict[str, str] = field(default_factory=dict)

    def run(self) -> Acceptance:
        """All steps that wait, and the verdicts."""
        waiting = [step for step in self.acceptance.steps if step.state is StepState.WAITING]
        ends_at = time.monotonic() + sum(step.planned_s for step in waiting) if self.limited else None
        for number, step in enumerate(waiting):
            self._take(step, self._ends_at(waiting[number:], ends_at))
        self.acceptance = replace(self.acceptance, ended=time.time())
        self._keep()
        return self.acceptance

    def _ends_at(self, left: Sequence[Step], ends_at: float | None) -> float | None:
        """Return when the first of these steps must end: its part of what is left of the budget; load as planned."""
        planned_s = sum(step.planned_s for step in left)
        now = time.monotonic()
        if ends_at is None or not planned_s:
            return now + left[0].planned_s if left[0].name == BURN else None
        return now + max(_NO_TIME_S, (ends_at - now) * left[0].planned_s / planned_s)

    def _take(self, step: Step, ends_at: float | None) -> None:
        kind = step_kind(step.name)
        names = [name for name in step.hosts if name not in self._left]
        # who does not answer at the beginning is told so by the first step
        least = kind.scope.least_hosts
        if len(names) < least:
            self._without(step, names)
            return
        began = time.monotonic()
        self.around.note(f"step {step.name}: {step.about}; {counted(len(names), 'host')}")
        result = self._result(kind, names, ends_at)
        took_s = time.monotonic() - began
        done = replace(step, hosts=tuple(names), state=StepState.DONE, took_s=round(took_s, 1))
        # a host that is lost is said by each run of probes again; what is fine, of a thousand hosts a hundred thousand
        # lines, the host's status in the step says
        members = {*names, ""}
        relevant = [finding for finding in result.findings if members & {finding.host, *finding.hosts}]
        seen = [Seen(step.name, finding) for finding in relevant if finding.status in COUNTS]
        self._add(done, seen, [Taken(step.name, measurement) for measurement in result.measurements])
        gone = leaving(done, result.findings, self._lost(result.findings))
        for name in sorted(gone):
            self._left[name] = step.name
        if gone:
            self.around.note(f"step {step.name}: {fold(sorted(gone))} takes no part in the following steps")
        self._keep()

    def _result(self, kind: StepKind, names: Sequence[str], ends_at: float | None) -> ProbeResult:
        hosts = [self.around.hosts[name] for name in names]
        if kind.name in (HEALTH, AFTER):
            return ProbeResult(findings=tuple(self.around.look(hosts)))
        if kind.name == DIAG:
            run = int(self._options(kind, names)["run"])
            return diagnose(self.around.transport, hosts, run, self.around.forks)
        if kind.name == BURN:
            return burn(self.around.look, self._loads(hosts), hosts, ends_at, self.around.note)
        return self._probe(kind, hosts, ends_at)

    def _options(self, kind: StepKind, names: Sequence[str]) -> Mapping[str, Any]:
        means = [self.around.means[name] for name in names]
        return kind.options(Level(self.acceptance.level), means) or {}

    def _probe(self, kind: StepKind, hosts: Sequence[Host], ends_at: float | None) -> ProbeResult:
        probe = declarations()[kind.probe]
        given = self._options(kind, [host.name for host in hosts])
        options = probe.options(**given, forks=self.around.forks)
        around = self.around
        try:
            return run_probes(around.transport, hosts, [(probe, options)], ends_at, around.note, around.profile_dirs)
        except UsageError as error:
            finding = Finding("", probe.name, Status.UNKNOWN, kind.name, actual=error.message, remedy=error.remedy)
            return ProbeResult(findings=(finding,))

    def _loads(self, hosts: Sequence[Host]) -> list[Callable[[float], ProbeResult]]:
        loads: list[Callable[[float], ProbeResult]] = []
        for step in self.acceptance.steps:
            kind = step_kind(step.name)
            if step.state is not StepState.DONE or not kind.probe:
                continue
            if kind.device or kind.scope is Scope.FLEET or kind.name == "memory":
                loads.append(lambda ends_at, kind=kind: self._probe(kind, hosts, ends_at))  # type: ignore[misc]
        return loads

    def _without(self, step: Step, names: Sequence[str]) -> None:
        why = f"only {counted(len(names), 'host')} left" if names else "no host is left"
        absent = [
            Seen(
                step.name,
                host_finding(
                    step.name,
                    name,
                    Status.WARNING,
                    "the step was not tried: no other host was left to measure with",
                    f"accept the host again beside a good one: nodectl -l {name},HOST accept",
                    subject="alone",
                ),
            )
            for name in names
        ]
        self._add(replace(step, hosts=tuple(names), state=StepState.LEFT_OUT, why=why), absent, [])
        self._keep()

    def _add(self, done: Step, seen: Sequence[Seen], taken: Sequence[Taken]) -> None:
        steps = tuple(done if step.name == done.name else step for step in self.acceptance.steps)
        self.acceptance = replace(
            self.acceptance,
            steps=steps,
            seen=(*self.acceptance.seen, *seen),
            taken=(*self.acceptance.taken, *taken),
        )

    def _lost(self, findings: Sequence[Finding]) -> set[str]:
        unreached = {
            finding.host for finding in findings if finding.check == _REACH and finding.status is Status.UNKNOWN
        }
        for name in unreached:
            self.around.transport.lost.setdefault(name, Loss("it could not be reached"))
        return {*self.around.transport.lost, *unreached}

    def _keep(self) -> None:
        acceptance = self.acceptance
        hosts = verdicts(acceptance.steps, acceptance.seen, self._left, self.around.means)
        self.acceptance = replace(acceptance, hosts=hosts)
        self.keep(self.acceptance)
