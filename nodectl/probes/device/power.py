"""The power probe: the GPUs of each host loaded in steps, 1, 2, … all, then all on and off together; what gives way."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from nodectl.common.counting import counted
from nodectl.model.finding import Finding
from nodectl.model.host import Host
from nodectl.model.measurement import Conditions, Measurement, MeasurementKind, Unit
from nodectl.model.status import Status
from nodectl.probes.base import Amount, Need, Note, Probe, ProbeOptions, ProbeResult, host_finding
from nodectl.probes.budget import marked
from nodectl.probes.device.devices import GPUS, START_S, Kind, called, device_of, least_of, measured, planned, shown
from nodectl.probes.each import Node
from nodectl.probes.events import Event, Events
from nodectl.probes.lost import GONE
from nodectl.transport.base import Transport

_NAME = "power"
_USUAL = Amount(repetitions=1, duration_s=5.0)
_REST_S, _ASK_S = 1.0, 15.0
_BRAKES = ("power brake", "hardware slowdown")
_TOLD = {"power cap", "thermal (software)", "thermal (hardware)", *_BRAKES}
# ATX12V design guide, table 2: 12 V within 5 %, at peak load within 10 %
_RAIL_LOW_V, _RAIL_LEAST_V = 11.4, 10.8
_CLOCK_PART = 0.9
_REMEDY = (
    "compare the supply with the cards' limits (`nodectl health`: psu_power): lower `gpu: power_limit_w` in the "
    "tuning, give cards cables of their own, or take a bigger supply"
)


def run_power(transport: Transport, hosts: Sequence[Host], options: ProbeOptions, note: Note) -> ProbeResult:
    """Watts of the GPUs together at each step, and at which step a rail sagged, clocks fell, or card or host went."""
    heard: dict[str, Events] = {}

    def read(node: Node, events: Events) -> ProbeResult:
        heard[node.host.name] = events
        return ProbeResult(tuple(_measurements(node, events)), tuple(_findings(node, events)))

    kind = Kind(PROBE, lambda amount, node: _cost_s(amount, node.gpus or GPUS), read)
    plan = planned(transport, hosts, options, note, kind)
    if isinstance(plan, ProbeResult):
        return plan

    def one(node: Node, _: object) -> ProbeResult:
        result = measured(transport, plan, kind, node)
        gone = _gone(transport, node, heard[node.host.name])
        return ProbeResult(result.measurements, (gone,)) if gone else result

    return marked(ProbeResult(findings=plan.findings) + plan.measured(transport, plan.nodes, one), plan.options)


def _cost_s(amount: Amount, gpus: int = GPUS) -> float:
    return START_S + (gpus + 1) * (_REST_S + amount.repetitions * amount.duration_s)


def _at(event: Event) -> str:
    together = "all on and off together" if event["pulsed"] else "at once"
    return f"at {counted(event['cards'], 'card')} {together}"


def _steps(events: Events) -> Iterator[tuple[Event, list[Event]]]:
    """Yield each step that ended, with what was seen of its GPUs."""
    for step in events.of("stepped"):
        same = [event for event in events.of("loaded") if event["began"] == step["began"]]
        yield step, [event | (event.get("seen") or {}) for event in same]


def _measurements(node: Node, events: Events) -> Iterator[Measurement]:
    for step, gpus in _steps(events):
        watts = [gpu["power_w"] for gpu in gpus if gpu.get("power_w") is not None]
        if len(watts) < len(gpus) or not gpus:
            continue
        clocks = [gpu["clock_mhz"] for gpu in gpus if gpu.get("clock_mhz") is not None]
        conditions = {
            **device_of(events, 0),
            "cards": step["cards"],
            "pulsed": step["pulsed"],
            "clock_mhz": min(clocks, default=None),
            "throttled": sorted({reason for gpu in gpus for reason in gpu.get("throttled") or ()}),
            "samples": min(gpu.get("samples", 0) for gpu in gpus),
            "rails": step["rails"],
            "duration_s": round(step["ended"] - step["began"], 1),
        }
        where = f"{node.host.name} {_at(step).removeprefix('at ')}"
        yield Measurement(_NAME, (node.host.name,), float(sum(watts)), "W", where, None, None, conditions)


def _findings(node: Node, events: Events) -> Iterator[Finding]:
    """Yield one finding for each thing that gave way, of the first step at which it did."""
    first: dict[str, Finding] = {}
    alone: dict[int, float] = {}

    def found(key: str, status: Status, actual: str) -> None:
        first.setdefault(key, _finding(node, status, actual))

    for step, gpus in _steps(events):
        for gpu in gpus:
            name, reasons, clock = called(gpu["gpu"]), gpu.get("throttled") or [], gpu.get("clock_mhz")
            for brake in (reason for reason in _BRAKES if reason in reasons):
                found("brake", Status.FAILED, f"{_at(step)}: {brake} of {name}, down to {gpu.get('clock_min_mhz')} MHz")
            if not clock or step["pulsed"] or _TOLD & set(reasons):
                continue
            if clock < _CLOCK_PART * alone.setdefault(gpu["gpu"], clock):
                actual = f"{_at(step)}: the clock of {name} fell from {alone[gpu['gpu']]:.0f} to {clock:.0f} MHz"
                found("clock", Status.WARNING, f"{actual}, and no reason is told")
        for rail, (low, _) in step["rails"].items():
            if low < _RAIL_LOW_V:
                status = Status.FAILED if low < _RAIL_LEAST_V else Status.WARNING
                found(f"rail {low < _RAIL_LEAST_V}", status, f"{_at(step)}: {rail} sagged to {low:.2f} V")
    for event in events.of("lost"):
        name = f"{called(event['gpu'])}: " if event["gpu"] is not None else ""
        found("lost", Status.FAILED, f"{_at(event)} a card was lost: {name}{event['text']}")
    yield from first.values()


def _finding(node: Node, status: Status, actual: str, remedy: str = _REMEDY, subject: str = "") -> Finding:
    more = {"action": "drain" if status is Status.FAILED else "none", "expected": "all cards at once"}
    return host_finding(_NAME, node.host.name, status, actual, remedy, subject=subject, **more)


def _gone(transport: Transport, node: Node, events: Events) -> Finding | None:
    """Return the finding of a host that did not live to tell the end of a step; None where it did, or lives on."""
    steps = events.of("step")
    if len(steps) == len(events.of("stepped")) or events.of("error"):
        return None
    answer = transport.run(node.host, ["cat", "/proc/sys/kernel/random/boot_id"], timeout_s=_ASK_S)
    if answer.ok and answer.stdout.strip() == node.answer["machine"]:
        return None
    how = "has restarted" if answer.ok else "went away"
    remedy = f"{_REMEDY}; when it is back, `nodectl health` says how it ended (unclean_boot)"
    return _finding(node, Status.FAILED, f"{_at(steps[-1])} the host {how}: power supply", remedy, GONE)


def _shown(given: Conditions) -> str:
    rails = given.get("rails")
    lows = [low for low, _ in rails.values()] if isinstance(rails, dict) else []
    return shown(given, f"12 V: {min(lows):.2f} V at least" if lows else "12 V: not told")


PROBE = Probe(
    name=_NAME,
    summary="The GPUs of each host loaded in steps, then all on and off together: what gives way.",
    run=run_power,
    options=ProbeOptions,
    results=MeasurementKind(
        units=(Unit("W", decimals=0, lower_is_better=True),),
        identity=("cards", "pulsed", "device"),
        shown=_shown,
    ),
    usual=_USUAL,
    least=least_of(_USUAL),
    cost_s=_cost_s,
    needs=(Need.GPU, Need.TORCH),
    feels=("gpu",),
)
