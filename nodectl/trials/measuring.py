"""Measurements of a turn: the chosen probes, short, one after the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from nodectl.articles.programs import PROBE, WorkloadOptions
from nodectl.common.units import time_text
from nodectl.errors import NodectlError, UsageError
from nodectl.model.finding import Finding
from nodectl.model.host import Host
from nodectl.model.result import CommandResult
from nodectl.model.status import Status
from nodectl.probes.base import Amount, Own, Probe, ProbeResult
from nodectl.probes.lost import Loss, Watched, said_once
from nodectl.probes.registry import AnyProbe
from nodectl.transport.base import Call, CallTransport, Transport
from nodectl.trials.verdict import MIN_PAIRS

TRAINING = "training"


@dataclass(slots=True)
class WithEnvironment(CallTransport):
    """A transport whose commands get the variables of `environment`, which has them by the host's name."""

    inner: Transport
    environment: Mapping[str, Mapping[str, str]]

    def call(self, call: Call) -> CommandResult:
        """Run the call's command with the host's variables."""
        words = [f"{name}={value}" for name, value in sorted(self.environment.get(call.host.name, {}).items())]
        argv = ["env", *words, *call.argv] if words else call.argv
        return self.inner.run(call.host, argv, timeout_s=call.timeout_s, stdin=call.stdin, on_output=call.on_output)

    def close(self) -> None:
        """Close the inner transport."""
        self.inner.close()


@dataclass(slots=True)
class Measuring:
    """The probes of a trial over its hosts.

    `asked` are options by name, which go before what each probe takes in a trial; a probe without such an option, and
    one that is None, is left as it is.
    """

    transport: Transport
    hosts: Sequence[Host]
    probes: Sequence[AnyProbe]
    asked: Mapping[str, object]
    # of these nobody was told to measure them: the trial goes on without
    wished: frozenset[str] = frozenset()
    dropped: list[Finding] = field(default_factory=list)
    _said: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the probes that measure something."""
        return tuple(probe.name for probe in self.probes)

    def lost(self) -> dict[str, str]:
        """Hosts that stopped answering while they were measured, with the reason; they are not asked again."""
        return {name: loss.reason for name, loss in self._losses().items()}

    def _losses(self) -> dict[str, Loss]:
        return self.transport.lost if isinstance(self.transport, Watched) else {}

    def __call__(self) -> ProbeResult:
        """Run every probe once; all measurements and findings."""
        result = ProbeResult()
        for probe in self.probes:
            if not self._losses():
                result += self._one(probe)
        return result

    def warm_up(self) -> ProbeResult:
        """Run every probe once before the first turn, so that what is slow only the first time is over.

        Probes that measure nothing here are left out of the trial, and `dropped` says why.
        """
        kept, result = [], ProbeResult()
        for probe in self.probes:
            probed = self._one(probe)
            result += probed
            if probed.measurements:
                kept.append(probe)
            else:
                self.dropped.extend(self._why(probe.name, probed))
            if self._losses():
                self.dropped.extend(finding for finding in probed.findings if finding not in self.dropped)
                break
        self.probes = kept
        return result

    def _one(self, probe: AnyProbe) -> ProbeResult:
        # a turn has a line of its own
        result = probe.run(self.transport, self.hosts, in_a_trial(probe, self.asked), lambda _: None)
        losses = self._losses()
        if losses:
            result = said_once(probe.name, result, losses, self._said)
            self._said = tuple(losses)
        return result

    def _why(self, name: str, result: ProbeResult) -> list[Finding]:
        findings = [finding for finding in result.findings if finding.status is not Status.OK]
        if not findings:
            raise NodectlError(f"the {name} probe measured nothing and gave no reason", f"try `nodectl probe {name}`")
        if name not in self.wished:
            return findings
        return [
            replace(finding, status=Status.WARNING, actual=f"not measured: {finding.actual}") for finding in findings
        ]


def in_a_trial(probe: Probe[Own], asked: Mapping[str, object]) -> Own:
    """Return what the probe measures in one turn: its own short measurement, with what was asked for and it has."""
    option_names = {field.name for field in fields(probe.options)}
    given: dict[str, Any] = {name: value for name, value in asked.items() if name in option_names and value is not None}
    return replace(probe.trial_options, **given)


def least_turn_s(probes: Sequence[AnyProbe], asked: Mapping[str, object]) -> float:
    """Seconds that a turn takes at least, by what the probes declare; what it takes here is measured later."""
    total_s = 0.0
    for probe in probes:
        options = in_a_trial(probe, asked)
        repetitions = options.repetitions or probe.least.repetitions
        total_s += probe.cost_s(Amount(repetitions, options.duration_s or probe.least.duration_s))
    return total_s


def refuse_too_short(left_s: float, turn_s: float, candidates: int) -> None:
    """Raise UsageError if the pairs that a verdict needs of each candidate do not fit into the time that is left."""
    least_s = 2 * MIN_PAIRS * turn_s * candidates
    if left_s < least_s:
        raise UsageError(
            f"{MIN_PAIRS} pairs take at least {time_text(least_s)} here, and {time_text(max(0.0, left_s))} are left",
            "give more time with --budget, fewer --probes or a shorter --duration; nothing was changed",
        )


def workload_probe(program: str, arguments: tuple[str, ...]) -> Probe[WorkloadOptions]:
    """Return a probe that trains this program with these options, else with its usual ones."""
    return replace(PROBE, in_a_trial=WorkloadOptions(repetitions=1, program=program, arguments=arguments))
