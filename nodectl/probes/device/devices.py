"""What the probes of GPUs and processors share: who has what, all devices of a host at once, and what came of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from nodectl.errors import ParseError, ProfileError
from nodectl.facts.versions import venv_of
from nodectl.model.finding import Finding
from nodectl.model.host import Host
from nodectl.model.measurement import Conditions, Measurement
from nodectl.model.result import CommandResult
from nodectl.model.status import Status
from nodectl.parsers.nvidia.smi_topo import parse_nvidia_smi_topo
from nodectl.probes.base import Amount, Note, Probe, ProbeOptions, ProbeResult, host_finding, spread
from nodectl.probes.budget import fit, given_up, said
from nodectl.probes.endpoints import failure
from nodectl.probes.events import Event, Events
from nodectl.probes.schedule import by_machine, turns
from nodectl.transport.base import Transport
from nodectl.transport.fanout import fan_out
from nodectl.transport.payload import run_payload

_LOOK_S = 120.0
# importing torch, waking the GPUs
START_S = 8.0
# of the host whose cost is told before any is asked
GPUS = 8
# a host may take so many times what was planned
_PATIENCE, _MORE_S = 5.0, 120.0
RUNS_KEY = "values"
_PROVISION = "run `nodectl provision` for it, or name its environment with the variable pytorch_venv"


@dataclass(frozen=True, slots=True)
class Node:
    """A host that can be measured; `gpus` 0 is certain, None is not."""

    host: Host
    gpus: int | None
    machine: str
    links: Mapping[str, Mapping[str, str]]


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


@dataclass(frozen=True, slots=True)
class Plan:
    """What will be run, on whom, within the budget."""

    kind: Kind
    nodes: tuple[Node, ...]
    options: ProbeOptions
    amount: Amount

    def cost_s(self, nodes: Sequence[Node]) -> float:
        """Of these nodes: those of one machine come in turn."""
        return turns(nodes, lambda each: each.machine, self.options.forks) * self._dearest(nodes)

    def _dearest(self, nodes: Sequence[Node]) -> float:
        return max((self.kind.cost_s(self.amount, node) for node in nodes), default=0.0)


def planned(
    transport: Transport, hosts: Sequence[Host], options: ProbeOptions, note: Note, kind: Kind
) -> tuple[Plan | None, list[Finding]]:
    """None where nobody can be measured; a finding for each who cannot."""
    nodes, findings = _look(transport, hosts, options, kind)
    if not nodes:
        return None, findings
    in_turn = turns(nodes, lambda each: each.machine, options.forks)
    options, amount = fit(
        kind.probe, options, cost_s=lambda each: in_turn * max(kind.cost_s(each, node) for node in nodes)
    )
    plan = Plan(kind, tuple(nodes), options, amount)
    note(f"{kind.name}: {_counted(nodes)}, about {said(plan.cost_s(nodes))}{given_up(options)}")
    return plan, findings


def measured(transport: Transport, plan: Plan, nodes: Sequence[Node]) -> ProbeResult:
    """Machines at once, as many as --forks says; the hosts of each in turn."""
    return by_machine(
        transport, nodes, lambda each: each.machine, lambda node: _one(transport, plan, node), plan.options.forks
    )


def measurement(probe: str, node: Node, event: Event, unit: str, where: str, conditions: Event) -> Measurement:
    """The median of the runs; what was seen of the device while they went on stands beside it."""
    values = [float(value) for value in event["rates"]]
    value = median(values)
    told = {
        **conditions,
        **(event.get("seen") or {}),
        "repetitions": len(values),
        "passes": event.get("passes"),
        RUNS_KEY: [round(value, 4) for value in values],
    }
    return Measurement(probe, (node.host.name,), value, unit, where, None, spread(values, value), told)


def device_of(events: Events, gpu: int | None) -> dict[str, object]:
    """What a GPU (None: the processors) is, and the libraries that drive it."""
    devices = events.of("devices")
    if not devices:
        return {}
    host = devices[0]["host"]
    own: dict[str, object] = {"torch": host["torch"], "cuda": host["cuda"]}
    if gpu is None:
        names = ("torch", "cpu", "cpu_kernels", "threads")
        return {"device": "cpu", **{name: host[name] for name in names}}
    known: Event = next((event for event in devices[0]["gpus"] if event["gpu"] == gpu), {})
    return {**own, **{name: value for name, value in known.items() if name not in ("pcie_gen", "pcie_width")}}


def broken(probe: str, node: Node, gpu: int | None, subject: str, actual: str) -> Finding:
    """Wrong results: not to be used any more."""
    return Finding(
        node.host.name,
        probe,
        Status.FAILED,
        f"{called(gpu)}, {subject}",
        "drain",
        "0 wrong",
        actual,
        f"run it again with `nodectl probe {probe},sdc`, and look for ECC errors and Xids with `nodectl health`",
        kind="host",
        hosts=(node.host.name,),
    )


def least_of(amount: Amount) -> Amount:
    """What is left of it for a short budget."""
    return Amount(1, amount.duration_s / 4)


def shown(given: Conditions, *words: object) -> str:
    """What a table tells beside a figure: these words, the device, and its state while it was measured."""
    device = given.get("device")
    named = f"{given.get('threads')} processors" if device == "cpu" else device
    return ", ".join(str(word) for word in (*words, named, *_seen(given)) if word)


def _seen(given: Conditions) -> list[str]:
    clock, heat, reasons = given.get("clock_mhz"), given.get("temperature_c"), given.get("throttled")
    words = [f"{clock:.0f} MHz"] if isinstance(clock, int | float) else []
    words += [f"{heat:.0f} °C"] if isinstance(heat, int | float) else []
    return words + ([f"limited by {', '.join(map(str, reasons))}"] if isinstance(reasons, list) and reasons else [])


def called(gpu: int | None) -> str:
    """`GPU 3`, or the processors."""
    return "CPU" if gpu is None else f"GPU {gpu}"


def _look(
    transport: Transport, hosts: Sequence[Host], options: ProbeOptions, kind: Kind
) -> tuple[list[Node], list[Finding]]:
    def ask(host: Host) -> tuple[CommandResult, Events]:
        events = Events()
        args = ["look", "--venv", venv_of(host)]
        module = f"probe_{kind.name}"
        return run_payload(transport, host, module, args, timeout_s=_LOOK_S, on_output=events.add), events

    answers = dict(fan_out(hosts, ask, options.forks))
    found = []
    for host in hosts:
        done, events = answers[host]
        told = events.of("ready")
        found.append(_node(host, told[0], kind) if done.ok and told else _unanswered(kind, host, done, events))
    return [each for each in found if isinstance(each, Node)], [each for each in found if isinstance(each, Finding)]


def _unanswered(kind: Kind, host: Host, done: CommandResult, events: Events) -> Finding:
    return host_finding(kind.name, host.name, Status.UNKNOWN, *failure(done, events))


def _node(host: Host, told: Event, kind: Kind) -> Node | Finding:
    """The host as one that can be measured, or why not: skipped only where it is certain that there is no such GPU."""
    gpus = told["gpus"]
    if not gpus and (said_to_have := _by_profile(host)):
        actual = f"no GPU is seen here, and the hardware profile speaks of {said_to_have}"
        return host_finding(kind.name, host.name, Status.UNKNOWN, actual, "look for the GPUs with `nodectl health`")
    if gpus is None and not kind.on_cpu:
        return host_finding(kind.name, host.name, Status.UNKNOWN, "cannot tell whether this host has a GPU")
    if gpus is not None and gpus < kind.least_gpus and not (kind.on_cpu and not gpus):
        actual = "no NVIDIA GPU here" if not gpus else "one GPU: no pair to copy between"
        return host_finding(kind.name, host.name, Status.SKIPPED, actual)
    if not told["torch"]:
        return host_finding(kind.name, host.name, Status.UNKNOWN, f"no torch in {venv_of(host)}", _PROVISION)
    return Node(host, gpus, str(told["machine"]) or host.name, _links(told.get("topology")))


def _by_profile(host: Host) -> int:
    """The GPUs of one of nodectl's own hardware profiles; 0 where it names none or another's."""
    # not at the top: it brings pydantic
    from nodectl.profiles.host import hardware_of

    try:
        hardware = hardware_of(host)
    except ProfileError:
        return 0
    return (hardware.gpus or 0) if hardware else 0


def _links(topology: str | None) -> Mapping[str, Mapping[str, str]]:
    try:
        return parse_nvidia_smi_topo(topology).links if topology else {}
    except ParseError:
        return {}


def _one(transport: Transport, plan: Plan, node: Node) -> ProbeResult:
    kind, name = plan.kind, node.host.name
    deadline_s = _PATIENCE * kind.cost_s(plan.amount, node) + _MORE_S
    wishes = {
        "seconds": plan.amount.duration_s,
        "runs": plan.amount.repetitions,
        "deadline": deadline_s,
        "need": node.gpus or 0,
    }
    args = ["measure", *(f"--{key}={value}" for key, value in wishes.items()), *kind.args]
    events = Events()
    done = run_payload(
        transport,
        node.host,
        f"probe_{kind.name}",
        args,
        timeout_s=deadline_s + START_S + _MORE_S,
        python=f"{venv_of(node.host)}/bin/python",
        on_output=events.add,
    )
    result = kind.read(node, events)
    errors = [host_finding(kind.name, name, Status.UNKNOWN, str(event["text"])) for event in events.of("error")]
    if not done.ok and not errors:
        errors = [host_finding(kind.name, name, Status.UNKNOWN, *failure(done, events))]
    return result + ProbeResult(findings=(*_unseen(kind, node, events), *errors))


def _unseen(kind: Kind, node: Node, events: Events) -> list[Finding]:
    """GPUs that are there and that torch does not see."""
    seen = [len(told["gpus"]) for told in events.of("devices")]
    if not seen or (node.gpus is not None and seen[0] >= node.gpus):
        return []
    if node.gpus is None:
        actual = "cannot tell whether this host has a GPU; its processors were measured" if not seen[0] else ""
    else:
        actual = f"torch sees {seen[0]} of {node.gpus} GPUs"
    remedy = "look at the GPUs with `nodectl health`: lost ones, MIG, the driver"
    return [host_finding(kind.name, node.host.name, Status.UNKNOWN, actual, remedy)] if actual else []


def _counted(nodes: Sequence[Node]) -> str:
    gpus = sum(node.gpus or 0 for node in nodes)
    bare = sum(not node.gpus for node in nodes)
    words = [f"{gpus} GPUs of {len(nodes) - bare} hosts"] if gpus else []
    return ", ".join([*words, *([f"the processors of {bare} hosts"] if bare else [])])
