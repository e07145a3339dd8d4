"""The p2p probe: copies between all pairs of GPUs of a host, each direction and both."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import combinations

from nodectl.common.units import MIB
from nodectl.model.finding import Finding
from nodectl.model.host import Host
from nodectl.model.measurement import Measurement, MeasurementKind, Unit
from nodectl.probes.base import Amount, Need, Note, Probe, ProbeOptions, ProbeResult
from nodectl.probes.device import devices
from nodectl.probes.each import Node
from nodectl.probes.events import Event, Events
from nodectl.probes.outliers import Comparison, SlowOne, worst_of
from nodectl.transport.base import Transport

_NAME = "p2p"
_USUAL = Amount(repetitions=3, duration_s=0.05)
_CHECK_S = 0.1
# there, back and both
_CASES = 3
# a GPU of whose pairs so many are slow is at fault itself
_ITS_OWN = 0.75


def run_p2p(transport: Transport, hosts: Sequence[Host], options: ProbeOptions, note: Note) -> ProbeResult:
    """GB/s of each pair, one pair at a time."""
    kind = devices.Kind(PROBE, lambda amount, node: _cost_s(amount, node.gpus or 2), _read, least_gpus=2)
    return devices.compared(transport, hosts, options, note, kind, Comparison(_alike, "bidirectional"), _blame)


def _cost_s(amount: Amount, gpus: int = devices.GPUS) -> float:
    return devices.START_S + gpus * (gpus - 1) / 2 * _CASES * (_CHECK_S + amount.repetitions * amount.duration_s)


def _alike(measurement: Measurement) -> tuple[object, ...]:
    """Pairs with the same link between them; the same pair of other hosts if that is not known."""
    given = measurement.conditions
    pair = given["link"] or (given["gpu"], given["target"])
    return given.get("device"), given["bidirectional"], pair


def _read(node: Node, events: Events) -> ProbeResult:
    measured = tuple(_measurement(node, events, event) for event in events.of("measured"))
    return ProbeResult(measured, devices.miscopied(_NAME, node, events, lambda event: f"to GPU {event['target']}"))


def _measurement(node: Node, events: Events, event: Event) -> Measurement:
    gpu, target = event["gpu"], event["target"]
    both = bool(event["bidirectional"])
    cards = [card for found in events.of("devices") for card in found["gpus"] if card["gpu"] in (gpu, target)]
    least = {name: min((card[name] or 0 for card in cards), default=0) or None for name in ("pcie_gen", "pcie_width")}
    conditions = {
        **devices.device_of(events, gpu),
        "gpu": gpu,
        "gpus": sum(len(event["gpus"]) for event in events.of("devices")),
        "target": target,
        # as floors have it
        "connection": "direct",
        "bidirectional": both,
        # False: CUDA itself goes through the host's memory
        "can_access_peer": event["peer_access"],
        "link": devices.links_of(node).get(f"GPU{gpu}", {}).get(f"GPU{target}"),
        "link_class": _link_class(node),
        **least,
        "size_mib": event["size_bytes"] // MIB,
        "wrong": event["wrong"],
    }
    arrow = "<->" if both else "->"
    return devices.measurement(
        _NAME, node, event, "GB/s", f"{node.host.name} GPU {gpu} {arrow} GPU {target}", conditions
    )


def _link_class(node: Node) -> str | None:
    """Return it as hardware profiles name it; None if nvidia-smi does not tell the links."""
    matrix = devices.links_of(node)
    names = [name for name in matrix if name.startswith("GPU")]
    links = [matrix[a].get(b, "") for a, b in combinations(names, 2)]
    if not links or not all(link.startswith("NV") for link in links):
        return "pcie" if links else None
    return "nvswitch" if len(names) > 2 else "nvlink-bridge"


def _blame(slow_ones: Sequence[SlowOne]) -> list[Finding]:
    by_host: dict[str, list[SlowOne]] = defaultdict(list)
    for pair in slow_ones:
        by_host[pair[0].hosts[0]].append(pair)
    return [finding for pairs in by_host.values() for finding in _of_host(worst_of(pairs, _ends))]


def _of_host(slow_ones: Sequence[SlowOne]) -> list[Finding]:
    findings, left = [], list(slow_ones)
    while left:
        gpu, count = Counter(end for measurement, _ in left for end in _ends(measurement)).most_common(1)[0]
        its_pairs = [pair for pair in left if gpu in _ends(pair[0])]
        worst = min(its_pairs, key=lambda pair: pair[1].share)
        gpus = worst[0].conditions["gpus"]
        partners = gpus - 1 if isinstance(gpus, int) else 1
        if count > 1 and count >= _ITS_OWN * partners:
            findings.append(devices.slow_device(worst, f"GPU {gpu}: {count} of its {partners} pairs"))
        else:
            findings += [devices.slow_device(pair, pair[0].direction) for pair in its_pairs]
        left = [pair for pair in left if gpu not in _ends(pair[0])]
    return findings


def _ends(measurement: Measurement) -> frozenset[object]:
    return frozenset((measurement.conditions["gpu"], measurement.conditions["target"]))


PROBE = Probe(
    name=_NAME,
    summary="Copies between all pairs of GPUs of a host, each direction and both.",
    run=run_p2p,
    options=ProbeOptions,
    results=MeasurementKind(
        units=(Unit("GB/s"),),
        identity=("numa", "gpu", "device", "bidirectional", "connection", "target"),
        places=("numa", "gpu", "target"),
        shown=lambda given: devices.shown(
            given, given.get("link"), "no peer access" if given.get("can_access_peer") is False else None
        ),
    ),
    usual=_USUAL,
    least=devices.least_of(_USUAL),
    cost_s=_cost_s,
    groups=("gpu",),
    needs=(Need.GPU, Need.TORCH),
    feels=("gpu",),
)
