"""What a turn measures: the chosen probes, short, one after the other, as the side is to be run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from nodectl.errors import NodectlError
from nodectl.model.finding import Finding
from nodectl.model.host import Host
from nodectl.model.status import Status
from nodectl.model.trial import Side
from nodectl.probes.base import Probe, ProbeOptions, ProbeResult
from nodectl.topology.fabric.judge import in_rank_order
from nodectl.transport.base import Transport

TRAINING = "training"
# probes in which hosts have ranks
_RANKED = frozenset({"nccl", TRAINING})
# seconds and repetitions of a probe in one turn: the pairs are the repetitions; None is the probe's own
_SHORT: Mapping[str, tuple[float | None, int | None]] = MappingProxyType(
    {
        "tcp": (2.0, 1),
        "latency": (0.5, 1),
        "nccl": (0.1, 3),
        "storage": (1.0, 1),
        "memory": (None, 1),
        TRAINING: (1.0, 2),
    }
)


@dataclass(slots=True)
class Measuring:
    """The probes of a trial over its hosts."""

    transport: Transport
    hosts: Sequence[Host]
    probes: Sequence[tuple[str, Probe]]
    options: ProbeOptions
    # of these nobody was told to measure them: the trial goes on without
    wished: frozenset[str] = frozenset()
    dropped: list[Finding] = field(default_factory=list)

    @property
    def names(self) -> tuple[str, ...]:
        """The probes that measure something."""
        return tuple(name for name, _ in self.probes)

    def __call__(self, side: Side) -> ProbeResult:
        """All of them once."""
        result = ProbeResult()
        for name, run in self.probes:
            result += self._one(name, run, side)
        return result

    def warm_up(self, side: Side) -> ProbeResult:
        """All of them once, for nothing: what is slow only the first time is over then.

        Probes that measure nothing here are left out of the trial, and `dropped` says why.
        """
        kept, result = [], ProbeResult()
        for name, run in self.probes:
            found = self._one(name, run, side)
            result += found
            if found.measurements:
                kept.append((name, run))
            else:
                self.dropped.extend(self._why(name, found))
        self.probes = kept
        return result

    def _one(self, name: str, run: Probe, side: Side) -> ProbeResult:
        duration_s, repetitions = _SHORT.get(name, (None, 1))
        options = replace(
            self.options,
            duration_s=self.options.duration_s or duration_s,
            repetitions=self.options.repetitions or repetitions,
            interface=side.run_with.get("interface", self.options.interface),
        )
        hosts = self.hosts
        if name in _RANKED and side.run_with.get("rank_order") == "fabric":
            hosts = in_rank_order(self.hosts, None)
        return run(self.transport, hosts, options, _silent)

    def _why(self, name: str, found: ProbeResult) -> list[Finding]:
        """What the probe says of it, as part of the trial's result."""
        told = [each for each in found.findings if each.status is not Status.OK]
        if not told:
            raise NodectlError(
                f"the {name} probe measured nothing, and does not say why", f"try `nodectl probe {name}`"
            )
        if name not in self.wished:
            return told
        return [replace(each, status=Status.WARNING, actual=f"not measured: {each.actual}") for each in told]


def _silent(_: str) -> None:
    """A turn has a line of its own."""
