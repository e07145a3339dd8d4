"""Devices of one kind held against each other over the fleet: the slow ones are measured again, then named."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from nodectl.model.finding import Finding
from nodectl.model.host import Host
from nodectl.model.measurement import Measurement
from nodectl.probes.base import Note, ProbeOptions, ProbeResult
from nodectl.probes.budget import has_time, marked
from nodectl.probes.device.devices import Kind, Node, called, measured, planned
from nodectl.probes.outliers import Comparison, SlowOne, slow_finding, worst_of
from nodectl.transport.base import Transport

_REMEDY = "compare clocks, power limit, temperature and throttle reasons (in the JSON's conditions) with the others'"


def compared(
    transport: Transport,
    hosts: Sequence[Host],
    options: ProbeOptions,
    note: Note,
    kind: Kind,
    comparison: Comparison,
    blame: Callable[[Sequence[SlowOne]], list[Finding]] | None = None,
) -> ProbeResult:
    """The whole of a probe: look, measure, measure suspects again, name them."""
    plan, findings = planned(transport, hosts, options, note, kind)
    if plan is None:
        return ProbeResult(findings=tuple(findings))

    def fits(nodes: Sequence[Node]) -> bool:
        return has_time(plan.options, plan.cost_s(nodes))

    result, slow_ones = comparison.measured(
        hosts, plan.nodes, lambda nodes: measured(transport, plan, nodes), fits, note
    )
    findings += [*result.findings, *(blame or _slow_devices)(slow_ones)]
    return marked(ProbeResult(result.measurements, tuple(findings)), plan.options)


def _slow_devices(slow_ones: Sequence[SlowOne]) -> list[Finding]:
    """One a device: its worst figure."""
    worst = worst_of(slow_ones, lambda measurement: (measurement.hosts[0], measurement.conditions.get("gpu")))
    return [slow_device(pair, _subject(pair[0])) for pair in worst]


def slow_device(pair: SlowOne, subject: str) -> Finding:
    """The finding for a device that is slower than the others of its kind."""
    return slow_finding(pair, subject, _REMEDY, digits=".4g", other="the other one has")


def _subject(measurement: Measurement) -> str:
    """`GPU 3, bf16`, `GPU 3, to it, near memory`, `CPU, fp32`."""
    given = measurement.conditions
    gpu = given.get("gpu")
    words = [called(gpu if isinstance(gpu, int) else None), given.get("precision"), given.get("transfer")]
    memory = f"{given['memory']} memory" if given.get("memory") else None
    return ", ".join(str(word) for word in (*words, memory) if word)
