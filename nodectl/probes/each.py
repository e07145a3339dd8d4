"""The course of probes of single hosts: machines at once, their hosts in turn, within the budget; suspects twice."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from nodectl.common.units import time_text
from nodectl.model.finding import Finding
from nodectl.model.host import Host
from nodectl.probes.base import Amount, Note, Probe, ProbeOptions, ProbeResult
from nodectl.probes.budget import fit, given_up, has_time, marked
from nodectl.probes.endpoints import Look, ask_all
from nodectl.probes.events import Event
from nodectl.probes.outliers import Comparison, SlowOne, better
from nodectl.probes.schedule import by_machine, turns
from nodectl.transport.base import Transport


@dataclass(frozen=True, slots=True)
class Node:
    """A host that can be measured, and what it said of itself."""

    host: Host
    answer: Event

    @property
    def machine(self) -> str:
        """Return the machine's id: hosts of a lab, or containers, may share one, and what is measured with it."""
        return str(self.answer["machine"]) or self.host.name

    @property
    def gpus(self) -> int | None:
        """Return how many GPUs the host has; 0 is certain, None is not told."""
        return self.answer.get("gpus")


# measures a node, one of those that are measured at the same time
One = Callable[[Node, Sequence[Node]], ProbeResult]


@dataclass(frozen=True, slots=True)
class Plan:
    """Hold what is run, on whom, within the budget; `findings` are of the hosts that cannot be measured."""

    probe: Probe[Any]
    nodes: tuple[Node, ...]
    options: ProbeOptions
    amount: Amount
    cost_s: Callable[[Amount, Node], float]
    note: Note
    findings: tuple[Finding, ...]

    def fits(self, nodes: Sequence[Node]) -> bool:
        """Return whether there is time to measure these nodes once more."""
        return has_time(self.options, _takes_s(self.cost_s, self.amount, nodes, self.options.forks))

    def measured(self, transport: Transport, nodes: Sequence[Node], one: One) -> ProbeResult:
        """Measure machines at once, as many as --forks says, and the hosts of each in turn."""
        return by_machine(transport, nodes, lambda node: one(node, nodes), self.options.forks)


def planned(
    transport: Transport,
    hosts: Sequence[Host],
    probe: Probe[Any],
    options: ProbeOptions,
    note: Note,
    *,
    look: Look,
    read: Callable[[Host, Event], Node | Finding],
    cost_s: Callable[[Amount, Node], float],
    described: Callable[[Sequence[Node]], str],
) -> Plan | ProbeResult:
    """Return what to run within the budget, if no host can be measured the findings that say why.

    `described` names for the operator what is measured of these nodes.
    """
    nodes, findings = ask_all(transport, hosts, probe.name, look, read, options.forks)
    if not nodes:
        return ProbeResult(findings=tuple(findings))
    takes_s = partial(_takes_s, cost_s, nodes=nodes, forks=options.forks)
    options, amount = fit(probe, options, cost_s=takes_s)
    note(f"{probe.name}: {described(nodes)}, about {time_text(takes_s(amount))}{given_up(options)}")
    return Plan(probe, tuple(nodes), options, amount, cost_s, note, tuple(findings))


def _takes_s(cost_s: Callable[[Amount, Node], float], amount: Amount, nodes: Sequence[Node], forks: int) -> float:
    return turns(nodes, forks) * max(cost_s(amount, node) for node in nodes)


def compared(
    transport: Transport,
    hosts: Sequence[Host],
    plan: Plan,
    one: One,
    comparison: Comparison,
    blame: Callable[[ProbeResult, list[SlowOne]], Iterable[Finding]],
) -> ProbeResult:
    """Measure all nodes by `one`, and suspects once more; `blame` names who is slow even so."""
    machines = {node.host.name: node.machine for node in plan.nodes}
    result = plan.measured(transport, plan.nodes, one)
    names = {row.hosts[0] for row, _ in comparison.slow_ones(result.measurements, hosts, machines)}
    suspects = [node for node in plan.nodes if node.host.name in names]
    if suspects and plan.fits(suspects):
        plan.note(f"{plan.probe.name}: once more on {', '.join(sorted(names))}")
        again = plan.measured(transport, suspects, one)
        result = better(result, again, comparison.series, comparison.value_key)
    slow_ones = comparison.slow_ones(result.measurements, hosts, machines)
    findings = (*plan.findings, *result.findings, *blame(result, slow_ones))
    return marked(ProbeResult(result.measurements, findings), plan.options)
