"""The steps of an acceptance, cheap ones and single hosts first, so that a bad host spoils no figure of the others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from types import MappingProxyType
from typing import Any

from nodectl.common.units import time_text
from nodectl.errors import UsageError
from nodectl.ledger.accept.means import Means
from nodectl.model.acceptance import Step, StepState
from nodectl.probes.base import Amount, Need
from nodectl.probes.registry import declarations
from nodectl.probes.rounds import usual_rounds


class Level(StrEnum):
    """How much is tried."""

    QUICK = "quick"
    STANDARD = "standard"
    BURN_IN = "burn-in"


class Scope(StrEnum):
    """The hosts that take part in one measurement of a step."""

    NODE = "node"
    PAIR = "pair"
    FLEET = "fleet"

    @property
    def least_hosts(self) -> int:
        """Return how many hosts the step needs at least."""
        return 1 if self is Scope.NODE else 2


# options of the probe by level; a level that is not named does not have the step
Asked = Mapping[Level, Mapping[str, Any]]
HEALTH, DIAG, BURN, AFTER = "health", "dcgm", "burn-in", "health-after"
_ONE_REDUCE: Mapping[str, Any] = {"collectives": ("all_reduce",)}
_QUICK_S = 0.5
_ONCE: Mapping[str, Any] = {"repetitions": 1, "duration_s": _QUICK_S}
# as measured on eight lab hosts that share two cores
_HEALTH_S, _HEALTH_HOST_S = 0.5, 0.05
# NVIDIA's own figures of `dcgmi diag -r`: some seconds, two minutes, a quarter of an hour
_DIAG_S = {1: 10.0, 2: 150.0, 3: 900.0}
# what GPUs train in, and what every processor has
_ONE_PRECISION, _OF_GPUS, _OF_CPUS = "one", ("bf16",), ("fp32",)


@dataclass(frozen=True, slots=True)
class StepKind:
    """A step as declared: what it measures with which options at each level, and on which hosts it can be.

    `probe` empty is a step of another kind than a probe. `device`: it measures hardware of a host, and says
    nothing of a host whose GPUs are recorded.
    """

    name: str
    about: str
    scope: Scope
    asked: Asked
    probe: str = ""
    device: bool = False
    least_gpus: int = 0
    needs: tuple[Need, ...] = field(default=())

    def options(self, level: Level, hosts: Sequence[Means]) -> Mapping[str, Any] | None:
        """Return the probe's options at this level on these hosts; None if the level does not have this step."""
        level = Level.STANDARD if level is Level.BURN_IN and level not in self.asked else level
        asked = self.asked.get(level)
        if self.name == DIAG and asked and any(host.consumer for host in hosts):
            return {**asked, "run": 1}
        if asked is None or asked.get("precisions") != _ONE_PRECISION:
            return asked
        return {**asked, "precisions": _OF_GPUS if any(host.gpus for host in hosts) else _OF_CPUS}

    def lacking(self, hosts: Sequence[Means]) -> str:
        """Return why it cannot be measured on these hosts; "" if it can."""
        if len(hosts) < self.scope.least_hosts:
            return "only one host is selected"
        if self.device and all(host.recorded for host in hosts):
            return "the hardware of these hosts is recorded, and computes nothing"
        probe_needs = declarations()[self.probe].needs if self.probe else ()
        for need in (*self.needs, *probe_needs):
            having = [host for host in hosts if host.has(need)]
            if not having:
                is_recorded = any(host.recorded for host in hosts) and need in (Need.GPU, Need.RDMA)
                return f"no host has {need}" + (" that is not recorded" if is_recorded else "")
        if self.least_gpus and all((host.gpus or 0) < self.least_gpus or host.recorded for host in hosts):
            return f"no host has {self.least_gpus} GPUs"
        return ""

    def cost_s(self, options: Mapping[str, Any], hosts: Sequence[Means]) -> float:
        """Return the seconds with these options on these hosts; those of one machine take turns. 0 for a burn-in."""
        if self.name == DIAG:
            return _DIAG_S[int(options["run"])]
        if not self.probe:
            return 0.0 if self.name == BURN else _HEALTH_S + _HEALTH_HOST_S * len(hosts)
        probe, rounds, turns = declarations()[self.probe], 1, 1
        if self.scope is Scope.PAIR:
            rounds = min(options.get("rounds") or usual_rounds(len(hosts)), max(1, len(hosts) - 1))
        elif self.scope is Scope.NODE:
            turns = max(Counter(host.machine or host.host for host in hosts).values(), default=1)
        repetitions, duration_s = options.get("repetitions"), options.get("duration_s")
        amount = Amount(repetitions or probe.usual.repetitions, duration_s or probe.usual.duration_s, rounds)
        return turns * probe.cost_s(amount)


def _on_hosts(
    name: str,
    about: str,
    quick: Mapping[str, Any] | None = None,
    standard: Mapping[str, Any] = MappingProxyType({}),
    *,
    probe: str = "",
    device: bool = True,
    least_gpus: int = 0,
) -> StepKind:
    asked = {Level.QUICK: quick, Level.STANDARD: standard}
    levels = {level: options for level, options in asked.items() if options is not None}
    return StepKind(name, about, Scope.NODE, levels, probe or name, device, least_gpus)


_TORCH = (Need.TORCH,)
# of one pair alone it would be open which of its ends is slow
_THREE_ROUNDS: Mapping[str, Any] = {"rounds": 3, "repetitions": 1, "duration_s": 1.0}
STEPS: tuple[StepKind, ...] = (
    StepKind(
        HEALTH,
        "compare every host with its profiles and its peers",
        Scope.NODE,
        {Level.QUICK: {}, Level.STANDARD: {}},
    ),
    StepKind(
        DIAG,
        "NVIDIA's own diagnostics (dcgmi diag)",
        Scope.NODE,
        {Level.QUICK: {"run": 1}, Level.STANDARD: {"run": 2}, Level.BURN_IN: {"run": 3}},
        device=True,
        needs=(Need.GPU,),
    ),
    _on_hosts("memory", "memory bandwidth", {"repetitions": 2}, device=False),
    _on_hosts(
        "gemm",
        "multiply matrices: rate, right results, throttling",
        {**_ONCE, "precisions": _ONE_PRECISION},
    ),
    _on_hosts("hbm", "memory of each GPU", _ONCE, least_gpus=1),
    _on_hosts("h2d", "copies between host and GPU", _ONCE, least_gpus=1),
    _on_hosts("p2p", "copies between the GPUs of a host", _ONCE, least_gpus=2),
    _on_hosts(
        "gemm-bits",
        "look for silent errors: one product has the same bits every time, on every device",
        standard={"mode": "bits"},
        probe="gemm",
    ),
    _on_hosts(
        "nccl-node",
        "NCCL between the GPUs of each host",
        {"scope": "node", **_ONE_REDUCE},
        {"scope": "node"},
        probe="nccl",
        least_gpus=2,
    ),
    _on_hosts(
        "rdma-node",
        "RDMA between the NICs of each host, or of a NIC with itself",
        {"scope": "node", "repetitions": 1, "duration_s": 1.0},
        {"scope": "node"},
        probe="rdma",
    ),
    StepKind(
        "tcp",
        "TCP between pairs of hosts",
        Scope.PAIR,
        {Level.QUICK: _THREE_ROUNDS, Level.STANDARD: {}},
        "tcp",
    ),
    StepKind(
        "rdma",
        "RDMA between pairs of hosts, every NIC with its peer",
        Scope.PAIR,
        {Level.QUICK: _THREE_ROUNDS, Level.STANDARD: {}},
        "rdma",
    ),
    StepKind(
        "nccl-pairs",
        "collectives between pairs of hosts",
        Scope.PAIR,
        {Level.STANDARD: {"scope": "pairs", **_ONE_REDUCE}},
        "nccl",
        needs=_TORCH,
    ),
    StepKind(
        "nccl",
        "collectives over all hosts",
        Scope.FLEET,
        {Level.QUICK: _ONE_REDUCE, Level.STANDARD: {}},
        "nccl",
        needs=_TORCH,
    ),
    StepKind(
        "training",
        "a short real training over all hosts",
        Scope.FLEET,
        {Level.QUICK: {"repetitions": 2, "duration_s": 1.0}, Level.STANDARD: {}},
        "training",
        needs=_TORCH,
    ),
    # its time is what the budget leaves
    StepKind(
        BURN,
        "load without end, and what grows meanwhile: errors, heat, throttling, counters",
        Scope.NODE,
        {Level.BURN_IN: {}},
    ),
    StepKind(AFTER, "every host looked at again after the load", Scope.NODE, {Level.BURN_IN: {}}),
)


def step_kind(name: str) -> StepKind:
    """Return the step of this name; KeyError if there is none."""
    return {kind.name: kind for kind in STEPS}[name]


# where a budget is too short, these are given up first, in this order
_GIVEN_UP = (
    "nccl-pairs",
    "rdma-node",
    "gemm-bits",
    "p2p",
    "h2d",
    "hbm",
    "dcgm",
    "training",
    "rdma",
    "nccl-node",
)
# of the usual time, the least that a probe's shortest form takes
_LEAST_PART = 0.4
BURN_IN_S = 2 * 3600.0
# the least of a burn-in that deserves the name of load
_LEAST_BURN_S = 20.0


def make_plan(
    means: Mapping[str, Means], level: Level, budget_s: float | None, known_s: Mapping[str, float]
) -> tuple[Step, ...]:
    """Return the steps in their order with their times; `known_s` is what steps took the last time, by name.

    UsageError where not even the least of it fits into the budget.
    """
    reached = [host for host in means.values() if host.reached]
    steps = [step for kind in STEPS if (step := _step(kind, level, reached, means, known_s)) is not None]
    if budget_s is None and level is not Level.BURN_IN:
        return tuple(steps)
    whole_s = BURN_IN_S + _sum(steps) if budget_s is None else budget_s
    return tuple(_fitted(steps, whole_s, level))


def _step(
    kind: StepKind, level: Level, reached: Sequence[Means], means: Mapping[str, Means], known_s: Mapping[str, float]
) -> Step | None:
    options = kind.options(level, reached)
    if options is None:
        return None
    hosts = [host for host in reached if not (kind.device and host.recorded)]
    # what cannot be reached is said by the first step
    names = tuple(means) if not kind.probe else tuple(host.host for host in hosts)
    step = Step(kind.name, kind.about, str(kind.scope), names)
    if reached and (why := kind.lacking(hosts if hosts else reached)):
        return replace(step, state=StepState.LEFT_OUT, why=why)
    if kind.name == DIAG and not any(host.dcgm for host in hosts):
        return replace(step, state=StepState.LEFT_OUT, why="DCGM's host engine runs on no host")
    seconds = known_s.get(kind.name) or kind.cost_s(options, hosts)
    return replace(step, planned_s=round(seconds, 1))


def _sum(steps: Sequence[Step]) -> float:
    return sum(step.planned_s for step in steps if step.state is not StepState.LEFT_OUT)


def _fitted(steps: Sequence[Step], budget_s: float, level: Level) -> list[Step]:
    """Less of each, then fewer of them; what a burn-in is left with is its load."""
    kept = list(steps)
    burn_s = _LEAST_BURN_S if level is Level.BURN_IN else 0.0
    for name in (*_GIVEN_UP, ""):
        least_s = _LEAST_PART * _sum(kept) + burn_s
        if least_s <= budget_s:
            break
        if not name:
            message = f"this takes at least {time_text(least_s)} here, and the budget is {time_text(budget_s)}"
            raise UsageError(message, "give more time with --budget, or fewer hosts with --limit")
        why = f"no room in {time_text(budget_s)}: more with --budget"
        kept = [
            replace(step, state=StepState.LEFT_OUT, why=why, planned_s=0.0)
            if step.name == name and step.state is not StepState.LEFT_OUT
            else step
            for step in kept
        ]
    own_s = _sum(kept)
    part = min(1.0, (budget_s - burn_s) / own_s) if own_s else 1.0
    left_s = budget_s - part * own_s
    return [
        replace(step, planned_s=round(left_s if step.name == BURN else part * step.planned_s, 1))
        if step.state is not StepState.LEFT_OUT
        else step
        for step in kept
    ]
