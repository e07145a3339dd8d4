"""The shared part of the probes of GPUs and processors: which devices there are, all at once, and who is slow."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from nodectl.common.counting import counted
from nodectl.errors import ParseError
from nodectl.facts.parsers.nvidia.smi_topo import parse_nvidia_smi_topo
from nodectl.facts.versions import venv_of
from nodectl.model.finding import Finding
from nodectl.model.host import Host
from nodectl.model.measurement import Conditions, Measurement
from nodectl.model.status import Status
from nodectl.probes import each
from nodectl.probes.base import Amount, Note, Probe, ProbeOptions, ProbeResult, host_finding, spread
from nodectl.probes.each import Node, Plan
from nodectl.probes.endpoints import Look, without_torch
from nodectl.probes.events import Event, Events, failure, run_program
from nodectl.probes.outliers import Comparison, SlowOne, hardware_known, of_itself, slow_finding, worst_of
from nodectl.transport.base import Transport

_LOOK_S = 120.0
# importing torch, waking the GPUs
START_S = 8.0
# of the host whose cost is told before any is asked
GPUS = 8
# a host may take so many times what was planned
_PATIENCE, _MORE_S = 5.0, 120.0


@dataclass(frozen=True, slots=True)
class Kind:
    """One of these probes: its defaults, what it costs a host, and how its program's words are read."""

    probe: Probe[Any]
    cost_s: Callable[[Amount, Node], float]
    read: Callable[[Node, Events], ProbeResult]
    on_cpu: bool = False
    least_gpus: int = 1
    args: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The name of the probe, and of its program `probe_NAME.py`."""
        return self.probe.name


def planned(
    transport: Transport, hosts: Sequence[Host], options: ProbeOptions, note: Note, kind: Kind
) -> Plan | ProbeResult:
    """Return what to run within the budget; if no host can be measured, why each cannot."""

    def described(nodes: Sequence[Node]) -> str:
        gpus, bare = sum(node.gpus or 0 for node in nodes), sum(not node.gpus for node in nodes)
        parts = [f"{counted(gpus, 'GPU')} of {counted(len(nodes) - bare, 'host')}"] if gpus else []
        return ", ".join([*parts, *([f"the processors of {bare} hosts"] if bare else [])])

    return each.planned(
        transport,
        hosts,
        kind.probe,
        options,
        note,
        look=Look(f"probes.device.{kind.name}", lambda host: ["look", "--venv", venv_of(host)], "ready", _LOOK_S),
        read=lambda host, answer: _node(host, answer, kind),
        cost_s=kind.cost_s,
        described=described,
    )


def measurement(probe: str, node: Node, event: Event, unit: str, where: str, conditions: Event) -> Measurement:
    """Return the median of the runs; what was seen of the device while they went on stands beside it."""
    values = [float(value) for value in event["rates"]]
    value = median(values)
    all_conditions = {
        **conditions,
        **(event.get("seen") or {}),
        "repetitions": len(values),
        "passes": event.get("passes"),
        "values": [round(value, 4) for value in values],
    }
    return Measurement(probe, (node.host.name,), value, unit, where, None, spread(values, value), all_conditions)


def device_of(events: Events, gpu: int | None) -> dict[str, object]:
    """Return what a GPU (None: the processors) is, and the libraries that drive it."""
    devices = events.of("devices")
    if not devices:
        return {}
    host = devices[0]["host"]
    libraries: dict[str, object] = {"torch": host["torch"], "cuda": host["cuda"]}
    if gpu is None:
        names = ("torch", "cpu", "cpu_kernels", "threads")
        return {"device": "cpu", **{name: host[name] for name in names}}
    properties: Event = next((event for event in devices[0]["gpus"] if event["gpu"] == gpu), {})
    return {
        **libraries,
        **{name: value for name, value in properties.items() if name not in ("pcie_gen", "pcie_width")},
    }


def broken(probe: str, node: Node, gpu: int | None, subject: str, actual: str) -> Finding:
    """Return a finding that takes a device with wrong results out of use."""
    remedy = "run it again, then `nodectl probe gemm --mode bits`; look for ECC errors and Xids with `nodectl health`"
    subject = f"{called(gpu)}, {subject}"
    return host_finding(
        probe, node.host.name, Status.FAILED, actual, remedy, subject=subject, action="drain", expected="0 wrong"
    )


def miscopied(probe: str, node: Node, events: Events, subject: Callable[[Event], str]) -> tuple[Finding, ...]:
    """Return a finding for each copy that does not hold what was copied."""
    return tuple(
        broken(probe, node, event["gpu"], subject(event), f"{event['wrong']} bytes are not what was copied")
        for event in events.of("measured")
        if event["wrong"]
    )


def least_of(amount: Amount) -> Amount:
    """Return the least of this amount, for a short budget: one repetition of a quarter of its time."""
    return Amount(1, amount.duration_s / 4)


def shown(given: Conditions, *words: object) -> str:
    """Return what a table tells beside a figure: these words, the device, and its state while it was measured."""
    device = given.get("device")
    named = f"{given.get('threads')} processors" if device == "cpu" else device
    clock, heat, reasons = given.get("clock_mhz"), given.get("temperature_c"), given.get("throttled")
    seen = [f"{clock:.0f} MHz"] if isinstance(clock, int | float) else []
    seen += [f"{heat:.0f} °C"] if isinstance(heat, int | float) else []
    seen += [f"limited by {', '.join(map(str, reasons))}"] if isinstance(reasons, list) and reasons else []
    return ", ".join(str(word) for word in (*words, named, *seen) if word)


def called(gpu: int | None) -> str:
    """Return the device's name in findings: `GPU 3`, or `CPU` for the processors."""
    return "CPU" if gpu is None else f"GPU {gpu}"


def _node(host: Host, answer: Event, kind: Kind) -> Node | Finding:
    """Return the host as one that can be measured, or why not: skipped only where it is certain to have no such GPU."""
    gpus = answer["gpus"]
    if answer.get("recorded") and not kind.on_cpu:
        actual = "the GPUs of this lab host are recorded, and compute nothing"
        return host_finding(kind.name, host.name, Status.SKIPPED, actual)
    hardware = None if gpus else hardware_known(host)
    if hardware and hardware.gpus:
        actual = f"no GPU is seen here, and the hardware profile speaks of {hardware.gpus}"
        return host_finding(kind.name, host.name, Status.UNKNOWN, actual, "look for the GPUs with `nodectl health`")
    if gpus is None and not kind.on_cpu:
        return host_finding(kind.name, host.name, Status.UNKNOWN, "cannot tell whether this host has a GPU")
    if gpus is not None and gpus < kind.least_gpus and not (kind.on_cpu and not gpus):
        actual = "no NVIDIA GPU here" if not gpus else "one GPU: no pair to copy between"
        return host_finding(kind.name, host.name, Status.SKIPPED, actual)
    if not answer["torch"]:
        return without_torch(kind.name, host)
    return Node(host, answer)


def links_of(node: Node) -> Mapping[str, Mapping[str, str]]:
    """Return nvidia-smi's matrix of links; empty if it was not told or cannot be read."""
    topology = node.answer.get("topology")
    try:
        return parse_nvidia_smi_topo(topology).links if topology else {}
    except ParseError:
        return {}


def measured(transport: Transport, plan: Plan, kind: Kind, node: Node) -> ProbeResult:
    """Run the probe's program on one host."""
    name = node.host.name
    deadline_s = _PATIENCE * kind.cost_s(plan.amount, node) + _MORE_S
    wishes = {
        "seconds": plan.amount.duration_s,
        "runs": plan.amount.repetitions,
        "deadline": deadline_s,
        "need": node.gpus or 0,
    }
    args = ["measure", *(f"--{key}={value}" for key, value in wishes.items()), *kind.args]
    done, events = run_program(
        transport,
        node.host,
        f"probes.device.{kind.name}",
        args,
        timeout_s=deadline_s + START_S + _MORE_S,
        python=f"{venv_of(node.host)}/bin/python",
    )
    result = kind.read(node, events)
    errors = [host_finding(kind.name, name, Status.UNKNOWN, str(event["text"])) for event in events.of("error")]
    if not done.ok and not errors:
        errors = [host_finding(kind.name, name, Status.UNKNOWN, *failure(done, events))]
    return result + ProbeResult(findings=(*_unseen(kind, node, events), *errors))


def _unseen(kind: Kind, node: Node, events: Events) -> list[Finding]:
    seen = [len(event["gpus"]) for event in events.of("devices")]
    if not seen or (node.gpus is not None and seen[0] >= node.gpus):
        return []
    if node.gpus is None:
        actual = "cannot tell whether this host has a GPU; its processors were measured" if not seen[0] else ""
    else:
        actual = f"torch sees {seen[0]} of {node.gpus} GPUs"
    remedy = "look at the GPUs with `nodectl health`: lost ones, MIG, the driver"
    return [host_finding(kind.name, node.host.name, Status.UNKNOWN, actual, remedy)] if actual else []


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
    """Run the whole of a probe: look, measure, measure suspects again, name them."""
    plan = planned(transport, hosts, options, note, kind)
    if isinstance(plan, ProbeResult):
        return plan

    def worst(slow_ones: Sequence[SlowOne]) -> list[Finding]:
        of_device = worst_of(slow_ones, lambda measurement: (measurement.hosts[0], measurement.conditions.get("gpu")))
        return [slow_device(pair, _subject(pair[0])) for pair in of_device]

    named = blame or worst
    return each.compared(
        transport,
        hosts,
        plan,
        lambda node, _: measured(transport, plan, kind, node),
        comparison,
        lambda _, slow_ones: named(of_itself(slow_ones)),
    )


def slow_device(pair: SlowOne, subject: str) -> Finding:
    """Return the finding for a device that is slower than the others of its kind."""
    return slow_finding(pair, subject, _REMEDY, digits=".4g", other="the other one has")


def _subject(measurement: Measurement) -> str:
    """Return `GPU 3, bf16`, `GPU 3, to it, near memory`, `CPU, fp32`."""
    given = measurement.conditions
    gpu = given.get("gpu")
    parts = [called(gpu if isinstance(gpu, int) else None), given.get("precision"), given.get("transfer")]
    memory = f"{given['memory']} memory" if given.get("memory") else None
    return ", ".join(str(word) for word in (*parts, memory) if word)
