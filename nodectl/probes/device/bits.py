"""The gemm probe's mode `bits`: one seeded product over and over on every device, compared bit by bit."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

from nodectl.common.counting import counted
from nodectl.common.nodeset import fold
from nodectl.model.finding import Finding
from nodectl.model.host import Host
from nodectl.model.measurement import Measurement
from nodectl.model.status import Status
from nodectl.probes.base import Note, ProbeOptions, ProbeResult, host_finding
from nodectl.probes.budget import marked
from nodectl.probes.device.devices import Kind, called, device_of, measured, planned
from nodectl.probes.each import Node
from nodectl.probes.events import Event, Events
from nodectl.transport.base import Transport

_NAME = "gemm"
# devices that agree in these compute the same bits
_KIND = ("precision", "device", "cpu", "cpu_kernels", "processors", "capability", "torch", "cuda")
_REMEDY = "take it out of use; look for ECC errors and Xids with `nodectl health`, then run its vendor's diagnosis"


def run_bits(transport: Transport, hosts: Sequence[Host], options: ProbeOptions, note: Note, kind: Kind) -> ProbeResult:
    """Count the products with other bits than the first; name the devices that differ from most others."""
    plan = planned(transport, hosts, options, note, kind)
    if isinstance(plan, ProbeResult):
        return plan
    result = plan.measured(transport, plan.nodes, lambda node, _: measured(transport, plan, kind, node))
    findings = (*plan.findings, *result.findings, *_odd(result.measurements))
    return marked(ProbeResult(result.measurements, findings), plan.options)


def read_bits(node: Node, events: Events) -> ProbeResult:
    """Return each device's figure, and a finding for each that differs from itself."""
    rows = events.of("repeated")
    changing = [
        _failed(
            node.host.name,
            row["gpu"],
            row["precision"],
            f"{row['changed']} of {counted(row['rounds'], 'product')} have other bits than the first",
        )
        for row in rows
        if row["changed"]
    ]
    return ProbeResult(tuple(_measurement(node, events, row) for row in rows), tuple(changing))


def _measurement(node: Node, events: Events, row: Event) -> Measurement:
    gpu, host = row["gpu"], node.host.name
    conditions = {
        "precision": row["precision"],
        **device_of(events, gpu),
        "gpu": gpu,
        **(row.get("seen") or {}),
        "rounds": row["rounds"],
        "digest": row["digest"],
    }
    where = f"{host} {called(gpu)}"
    return Measurement(_NAME, (host,), float(row["changed"]), "wrong results", where, None, None, conditions)


def _odd(measurements: Sequence[Measurement]) -> Iterator[Finding]:
    """Compare devices of one kind: what most devices of most hosts computed is right."""
    kinds: dict[tuple[object, ...], list[Measurement]] = defaultdict(list)
    for device in measurements:
        if not device.value:  # a device that differs from itself has no vote
            kinds[tuple(device.conditions.get(name) for name in _KIND)].append(device)
    for alike in kinds.values():
        right, votes = Counter(device.conditions["digest"] for device in alike).most_common(1)[0]
        odd = [device for device in alike if device.conditions["digest"] != right]
        names = {device.hosts[0] for device in alike}
        agreeing = {device.hosts[0] for device in alike if device.conditions["digest"] == right}
        if 2 * votes > len(alike) and 2 * len(agreeing) > len(names):
            for device in odd:
                gpu, precision = device.conditions["gpu"], device.conditions["precision"]
                actual = f"other bits than {votes} of {len(alike)} devices of its kind"
                yield _failed(device.hosts[0], gpu, str(precision), actual)
        elif odd:
            yield _undecided(sorted(names), [*dict.fromkeys(device.direction for device in odd)])


def _failed(host: str, gpu: object, precision: str, actual: str) -> Finding:
    subject = f"{called(gpu if isinstance(gpu, int) else None)}, {precision}"
    return host_finding(
        _NAME, host, Status.FAILED, actual, _REMEDY, subject=subject, action="drain", expected="the same bits each time"
    )


def _undecided(names: Sequence[str], differing: Sequence[str]) -> Finding:
    return Finding(
        names[0],
        _NAME,
        Status.FAILED,
        fold(names),
        expected="the same bits on devices of one kind",
        actual=f"{', '.join(differing)}: other bits than the rest; it cannot be told which devices are wrong",
        remedy="run it with a third host of the same kind, or more",
        hosts=tuple(names),
    )
