"""The gemm probe: matrix products on all GPUs of a host at once; on its processors if there is none."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from nodectl.common.counting import counted
from nodectl.common.nodeset import fold
from nodectl.model.finding import Finding
from nodectl.model.host import Host
from nodectl.model.measurement import Measurement, MeasurementKind, Unit
from nodectl.model.status import Status
from nodectl.probes.base import Amount, Need, Note, Probe, ProbeOptions, ProbeResult, host_finding
from nodectl.probes.budget import marked
from nodectl.probes.device import devices
from nodectl.probes.each import Node
from nodectl.probes.events import Event, Events
from nodectl.probes.options import Choice, Text, names, option, refuse_unknown
from nodectl.probes.outliers import Comparison
from nodectl.transport.base import Transport

_NAME = "gemm"
_RATE, _BITS = "rate", "bits"
PRECISIONS = ("bf16", "fp16", "tf32", "fp8", "fp32")
# what a device is measured in if nothing is asked for: as many as payload/probes/device/gemm.py has
_ON_GPU, _ON_CPU = 4, 2
# a run is long enough for clocks and power to settle, and to be looked at
_USUAL = Amount(repetitions=3, duration_s=1.0)
_SEARCH_S, _CHECK_S = 3.0, 1.0
# a GPU that slows itself down for these is not well cooled or not well fed
_BAD_REASONS = {"hardware slowdown", "thermal (software)", "thermal (hardware)", "power brake"}


@dataclass(frozen=True, slots=True)
class GemmOptions(ProbeOptions):
    """`precisions` empty is what the device is made for."""

    precisions: tuple[str, ...] = option(
        (), Text("NAME[,NAME…]", names), f"{', '.join(PRECISIONS)}.", shown="what the device is for"
    )
    mode: str = option(
        _RATE, Choice((_RATE, _BITS)), f"{_RATE}: TFLOP/s; {_BITS}: repeat one seeded product and compare its bits."
    )


def run_gemm(transport: Transport, hosts: Sequence[Host], options: GemmOptions, note: Note) -> ProbeResult:
    """TFLOP/s of every device and precision, or whether each computes the same bits every time."""
    refuse_unknown("precision", options.precisions, PRECISIONS)

    def cost_s(amount: Amount, node: Node) -> float:
        return _cost_s(amount, len(options.precisions) or (_ON_GPU if node.gpus else _ON_CPU))

    def alike(measurement: Measurement) -> tuple[object, ...]:
        given = measurement.conditions
        return given["precision"], given.get("device"), given.get("cpu"), given.get("threads")

    args = (f"--precisions={','.join(options.precisions)}", f"--mode={options.mode}")
    if options.mode == _BITS:

        def bits_cost_s(amount: Amount, _: Node) -> float:
            return devices.START_S + max(1, len(options.precisions)) * amount.repetitions * amount.duration_s

        def read(node: Node, events: Events) -> ProbeResult:
            return _read_bits(node, events) + ProbeResult(findings=tuple(_lacking(node, events)))

        kind = devices.Kind(PROBE, bits_cost_s, read, on_cpu=True, args=args)
        return _run_bits(transport, hosts, options, note, kind)
    kind = devices.Kind(PROBE, cost_s, _read, on_cpu=True, args=args)
    return devices.compared(transport, hosts, options, note, kind, Comparison(alike, "precision"))


def _cost_s(amount: Amount, precisions: int = _ON_GPU) -> float:
    return devices.START_S + precisions * (_SEARCH_S + _CHECK_S + amount.repetitions * amount.duration_s)


def _read(node: Node, events: Events) -> ProbeResult:
    measured = events.of("measured")
    measurements = [_measurement(node, events, event) for event in measured]
    findings = [*_wrong(node, measured), *_throttled(node, measured), *_lacking(node, events)]
    return ProbeResult(tuple(measurements), tuple(findings))


def _measurement(node: Node, events: Events, event: Event) -> Measurement:
    gpu = event["gpu"]
    conditions = {
        "precision": event["precision"],
        **devices.device_of(events, gpu),
        "gpu": gpu,
        "best_shape": "x".join(map(str, event["shape"])),
        "layout": event["layout"],
        "sets": event["sets"],
        "checked": event["checked"],
        "wrong": event["wrong"],
        "changed": event["changed"],
        # JSON has no infinity
        "largest_error": event["error"] if math.isfinite(event["error"]) else None,
    }
    return devices.measurement(_NAME, node, event, "TFLOPS", f"{node.host.name} {devices.called(gpu)}", conditions)


def _wrong(node: Node, measured: Sequence[Event]) -> list[Finding]:
    findings = []
    for event in measured:
        if event["wrong"]:
            actual = (
                f"{event['wrong']} of {event['checked']} elements are wrong, by up to {event['error']:.3g} of the usual"
            )
            findings.append(devices.broken(_NAME, node, event["gpu"], event["precision"], actual))
        # on processors another number of threads may sum up in another order
        elif event["changed"] and event["gpu"] is not None:
            changed, runs = counted(event["changed"], "element"), counted(len(event["rates"]), "run")
            actual = f"the same product came out differently: {changed} in {runs}"
            findings.append(devices.broken(_NAME, node, event["gpu"], event["precision"], actual))
    return findings


def _throttled(node: Node, measured: Sequence[Event]) -> list[Finding]:
    """Return a warning for each GPU that slowed itself down for heat or power, however many precisions there are."""
    findings: dict[object, Finding] = {}
    for event in measured:
        seen = event.get("seen") or {}
        bad = sorted(_BAD_REASONS & set(seen.get("throttled") or ()))
        if bad and event["gpu"] not in findings:
            actual = (
                f"{devices.called(event['gpu'])} slowed itself down: {', '.join(bad)}; {seen.get('temperature_c')} °C"
            )
            remedy = "look at fans, airflow and power supply of this host"
            findings[event["gpu"]] = host_finding(_NAME, node.host.name, Status.WARNING, actual, remedy)
    return list(findings.values())


def _lacking(node: Node, events: Events) -> list[Finding]:
    lacks = {event["precision"]: event["text"] for event in events.of("lacks")}
    return [
        host_finding(_NAME, node.host.name, Status.SKIPPED, text, subject=precision)
        for precision, text in lacks.items()
    ]


# devices that agree in these compute the same bits
_ALIKE = ("precision", "device", "cpu", "cpu_kernels", "processors", "capability", "torch", "cuda")
_BITS_REMEDY = "take it out of use; look for ECC errors and Xids with `nodectl health`, then run its vendor's diagnosis"


def _run_bits(
    transport: Transport, hosts: Sequence[Host], options: ProbeOptions, note: Note, kind: devices.Kind
) -> ProbeResult:
    """Count the products with other bits than the first; name the devices that differ from most others."""
    plan = devices.planned(transport, hosts, options, note, kind)
    if isinstance(plan, ProbeResult):
        return plan
    result = plan.measured(transport, plan.nodes, lambda node, _: devices.measured(transport, plan, kind, node))
    findings = (*plan.findings, *result.findings, *_odd(result.measurements))
    return marked(ProbeResult(result.measurements, findings), plan.options)


def _read_bits(node: Node, events: Events) -> ProbeResult:
    rows = events.of("repeated")
    changing = [
        _wrong_bits(
            node.host.name,
            row["gpu"],
            row["precision"],
            f"{row['changed']} of {counted(row['rounds'], 'product')} have other bits than the first",
        )
        for row in rows
        if row["changed"]
    ]
    return ProbeResult(tuple(_bits_of(node, events, row) for row in rows), tuple(changing))


def _bits_of(node: Node, events: Events, row: Event) -> Measurement:
    gpu, host = row["gpu"], node.host.name
    conditions = {
        "precision": row["precision"],
        **devices.device_of(events, gpu),
        "gpu": gpu,
        **(row.get("seen") or {}),
        "rounds": row["rounds"],
        "digest": row["digest"],
    }
    where = f"{host} {devices.called(gpu)}"
    return Measurement(_NAME, (host,), float(row["changed"]), "wrong results", where, None, None, conditions)


def _odd(measurements: Sequence[Measurement]) -> Iterator[Finding]:
    """Compare devices of one kind: what most devices of most hosts computed is right."""
    kinds: dict[tuple[object, ...], list[Measurement]] = defaultdict(list)
    for device in measurements:
        if not device.value:  # a device that differs from itself has no vote
            kinds[tuple(device.conditions.get(name) for name in _ALIKE)].append(device)
    for alike in kinds.values():
        right, votes = Counter(device.conditions["digest"] for device in alike).most_common(1)[0]
        odd = [device for device in alike if device.conditions["digest"] != right]
        names = {device.hosts[0] for device in alike}
        agreeing = {device.hosts[0] for device in alike if device.conditions["digest"] == right}
        if 2 * votes > len(alike) and 2 * len(agreeing) > len(names):
            for device in odd:
                gpu, precision = device.conditions["gpu"], device.conditions["precision"]
                actual = f"other bits than {votes} of {len(alike)} devices of its kind"
                yield _wrong_bits(device.hosts[0], gpu, str(precision), actual)
        elif odd:
            yield _undecided(sorted(names), [*dict.fromkeys(device.direction for device in odd)])


def _wrong_bits(host: str, gpu: object, precision: str, actual: str) -> Finding:
    subject = f"{devices.called(gpu if isinstance(gpu, int) else None)}, {precision}"
    return host_finding(
        _NAME,
        host,
        Status.FAILED,
        actual,
        _BITS_REMEDY,
        subject=subject,
        action="drain",
        expected="the same bits each time",
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


PROBE = Probe(
    name=_NAME,
    summary="Matrix products on all GPUs of each host at once, or on its processors.",
    run=run_gemm,
    options=GemmOptions,
    results=MeasurementKind(
        units=(
            Unit("TFLOPS", lower_is_better=False),
            Unit("wrong results", decimals=0, lower_is_better=True),
        ),
        identity=("numa", "threads", "gpu", "device", "precision"),
        places=("numa", "gpu"),
        shown=lambda given: devices.shown(
            given,
            given.get("precision"),
            given.get("best_shape"),
            counted(given["rounds"], "product") if "rounds" in given else None,
        ),
    ),
    usual=_USUAL,
    least=devices.least_of(_USUAL),
    cost_s=_cost_s,
    groups=("quick", "gpu"),
    needs=(Need.TORCH,),
    feels=("gpu",),
)
