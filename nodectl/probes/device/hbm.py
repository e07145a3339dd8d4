"""The hbm probe: copies within the memory of every GPU, all GPUs of a host at once."""

from __future__ import annotations

from collections.abc import Sequence

from nodectl.model.host import Host
from nodectl.model.measurement import Measurement
from nodectl.probes.base import MIB, Note, ProbeOptions, ProbeResult
from nodectl.probes.budget import Amount
from nodectl.probes.device.compare import compared
from nodectl.probes.device.devices import START_S, Kind, Node, broken, called, device_of, measurement
from nodectl.probes.events import Event, Events
from nodectl.transport.base import Transport

_NAME = "hbm"
RUNS = 3
DURATION_S = 0.5
_CHECK_S = 2.0
# an array is beyond a cache that holds a quarter of it at most
_TIMES_CACHE = 4


def run_hbm(transport: Transport, hosts: Sequence[Host], options: ProbeOptions, note: Note) -> ProbeResult:
    """GB/s of every GPU, read and written together."""
    kind = Kind(_NAME, RUNS, DURATION_S, _cost_s, _read)
    return compared(transport, hosts, options, note, kind, lambda each: each.conditions.get("device"), "kernel")


def _cost_s(amount: Amount, _: Node) -> float:
    return START_S + _CHECK_S + amount.repetitions * amount.duration_s


def _read(node: Node, events: Events) -> ProbeResult:
    told = events.of("measured")
    findings = [
        broken(_NAME, node, each["gpu"], "copy", f"{each['wrong']} bytes are not what was copied")
        for each in told
        if each["wrong"]
    ]
    return ProbeResult(tuple(_measurement(node, events, each) for each in told), tuple(findings))


def _measurement(node: Node, events: Events, event: Event) -> Measurement:
    array, cache = int(event["array_bytes"]), int(event["cache_bytes"])
    conditions = {
        "kernel": "copy",
        **device_of(events, event["gpu"]),
        "gpu": event["gpu"],
        "how": event["how"],
        "counted": "read and written",
        "array_mib": array // MIB,
        "cache_mib": cache // MIB if cache else None,
        "beyond_cache": array >= _TIMES_CACHE * cache if cache else None,
        "wrong": event["wrong"],
    }
    return measurement(_NAME, node, event, "GB/s", f"{node.host.name} {called(event['gpu'])}", conditions)
