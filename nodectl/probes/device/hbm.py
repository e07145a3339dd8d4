"""The hbm probe: copies within the memory of every GPU, all GPUs of a host at once."""

from __future__ import annotations

from collections.abc import Sequence

from nodectl.common.units import MIB
from nodectl.model.host import Host
from nodectl.model.measurement import Measurement, MeasurementKind, Unit
from nodectl.probes.base import Amount, Need, Note, Probe, ProbeOptions, ProbeResult
from nodectl.probes.device import devices
from nodectl.probes.each import Node
from nodectl.probes.events import Event, Events
from nodectl.probes.outliers import Comparison
from nodectl.transport.base import Transport

_NAME = "hbm"
_USUAL = Amount(repetitions=3, duration_s=0.5)
_CHECK_S = 2.0
# an array is beyond a cache that holds a quarter of it at most
_TIMES_CACHE = 4


def run_hbm(transport: Transport, hosts: Sequence[Host], options: ProbeOptions, note: Note) -> ProbeResult:
    """GB/s of every GPU, read and written together."""
    kind = devices.Kind(PROBE, _cost_s, _read)
    comparison = Comparison(lambda measurement: measurement.conditions.get("device"), "kernel")
    return devices.compared(transport, hosts, options, note, kind, comparison)


def _cost_s(amount: Amount, _: Node | None = None) -> float:
    return devices.START_S + _CHECK_S + amount.repetitions * amount.duration_s


def _read(node: Node, events: Events) -> ProbeResult:
    measured = tuple(_measurement(node, events, event) for event in events.of("measured"))
    return ProbeResult(measured, devices.miscopied(_NAME, node, events, lambda _: "copy"))


def _measurement(node: Node, events: Events, event: Event) -> Measurement:
    array, cache = int(event["array_bytes"]), int(event["cache_bytes"])
    conditions = {
        "kernel": "copy",
        **devices.device_of(events, event["gpu"]),
        "gpu": event["gpu"],
        "how": event["how"],
        "counted": "read and written",
        "array_mib": array // MIB,
        "cache_mib": cache // MIB if cache else None,
        "beyond_cache": array >= _TIMES_CACHE * cache if cache else None,
        "wrong": event["wrong"],
    }
    return devices.measurement(
        _NAME, node, event, "GB/s", f"{node.host.name} {devices.called(event['gpu'])}", conditions
    )


PROBE = Probe(
    name=_NAME,
    summary="Copies within the memory of every GPU, all GPUs of a host at once.",
    run=run_hbm,
    options=ProbeOptions,
    results=MeasurementKind(
        units=(Unit("GB/s"),),
        identity=("kernel", "numa", "gpu", "device"),
        places=("numa", "gpu"),
        shown=lambda given: devices.shown(given, "read and written", f"{given.get('array_mib')} MiB"),
    ),
    usual=_USUAL,
    least=devices.least_of(_USUAL),
    cost_s=_cost_s,
    groups=("quick", "gpu"),
    needs=(Need.GPU, Need.TORCH),
    feels=("gpu",),
)
