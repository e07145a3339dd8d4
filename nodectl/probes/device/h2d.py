"""The h2d probe: pinned copies between each GPU and the near and the far NUMA node's memory, both directions."""

from __future__ import annotations

from collections.abc import Sequence

from nodectl.common.units import MIB
from nodectl.model.finding import Finding
from nodectl.model.host import Host
from nodectl.model.measurement import Measurement, MeasurementKind, Unit
from nodectl.model.status import Status
from nodectl.probes.base import Amount, Need, Note, Probe, ProbeOptions, ProbeResult, host_finding
from nodectl.probes.device import devices
from nodectl.probes.each import Node
from nodectl.probes.events import Event, Events
from nodectl.probes.outliers import Comparison
from nodectl.transport.base import Transport

_NAME = "h2d"
_USUAL = Amount(repetitions=3, duration_s=0.2)
_PREPARE_S = 0.5
# near and far, there and back
_CASES = 4


def run_h2d(transport: Transport, hosts: Sequence[Host], options: ProbeOptions, note: Note) -> ProbeResult:
    """GB/s of each GPU, one GPU at a time."""

    def alike(measurement: Measurement) -> tuple[object, ...]:
        return tuple(measurement.conditions.get(name) for name in ("device", "transfer", "memory"))

    kind = devices.Kind(PROBE, lambda amount, node: _cost_s(amount, node.gpus or 1), _read)
    return devices.compared(transport, hosts, options, note, kind, Comparison(alike, "memory"))


def _cost_s(amount: Amount, gpus: int = devices.GPUS) -> float:
    return devices.START_S + gpus * _CASES * (_PREPARE_S + amount.repetitions * amount.duration_s)


def _read(node: Node, events: Events) -> ProbeResult:
    measured = events.of("measured")
    links = {
        gpu["gpu"]: (gpu["pcie_gen"], gpu["pcie_width"]) for event in events.of("devices") for gpu in event["gpus"]
    }
    measurements = tuple(_measurement(node, events, event, links) for event in measured)
    findings = devices.miscopied(_NAME, node, events, _transfer)
    return ProbeResult(measurements, (*findings, *_trained_down(node, measured, links)))


def _transfer(event: Event) -> str:
    return "host to GPU" if event["to_gpu"] else "GPU to host"


def _measurement(
    node: Node, events: Events, event: Event, links: dict[object, tuple[int | None, int | None]]
) -> Measurement:
    gpu, place = event["gpu"], str(event["place"])
    gen, width = links.get(gpu, (None, None))
    conditions = {
        **devices.device_of(events, gpu),
        "gpu": gpu,
        "transfer": _transfer(event),
        "memory": place,
        # what a profile expects holds for the near node: a far one's way leads through another socket
        **({"pcie_gen": gen} if place != "far" else {}),
        "pcie_width": width,
        "link": f"PCIe gen {gen} x{width}" if gen and width else None,
        "memory_numa": event["numa"],
        "size_mib": event["size_bytes"] // MIB,
        "wrong": event["wrong"],
    }
    arrow = f"host -> {devices.called(gpu)}" if event["to_gpu"] else f"{devices.called(gpu)} -> host"
    return devices.measurement(_NAME, node, event, "GB/s", f"{node.host.name} {arrow}", conditions)


def _trained_down(
    node: Node, measured: Sequence[Event], links: dict[object, tuple[int | None, int | None]]
) -> list[Finding]:
    """GPUs whose link is narrower or slower under load than it and its slot can be; the best moment counts."""
    now: dict[int, tuple[float, float]] = {}
    for event in measured:
        seen = event.get("seen") or {}
        if seen.get("pcie_gen_now") and seen.get("pcie_width_now"):
            before = now.get(event["gpu"], (0.0, 0.0))
            now[event["gpu"]] = (max(before[0], seen["pcie_gen_now"]), max(before[1], seen["pcie_width_now"]))
    findings = []
    for gpu, (gen, width) in now.items():
        most_gen, most_width = links.get(gpu, (None, None))
        if most_gen and most_width and (gen < most_gen or width < most_width):
            possible = f"gen {most_gen} x{most_width} is possible"
            actual = f"{devices.called(gpu)} runs at PCIe gen {gen:g} x{width:g} under load; {possible}"
            remedy = "reseat the GPU or its riser, and look for PCIe errors with `nodectl health`"
            findings.append(host_finding(_NAME, node.host.name, Status.FAILED, actual, remedy))
    return findings


PROBE = Probe(
    name=_NAME,
    summary="Pinned copies between each GPU and the near and the far NUMA node's memory, both directions.",
    run=run_h2d,
    options=ProbeOptions,
    results=MeasurementKind(
        units=(Unit("GB/s"),),
        identity=("numa", "gpu", "device", "memory", "transfer"),
        places=("numa", "gpu"),
        shown=lambda given: devices.shown(given, f"{given.get('memory')} memory", given.get("link")),
    ),
    usual=_USUAL,
    least=devices.least_of(_USUAL),
    cost_s=_cost_s,
    groups=("gpu",),
    needs=(Need.GPU, Need.TORCH),
    floors=("pcie_gen",),
    feels=("gpu",),
)
