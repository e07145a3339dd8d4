"""The plan of an acceptance: its steps on these hosts, what each takes, and why others were left out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from nodectl.common.units import time_text
from nodectl.errors import UsageError
from nodectl.ledger.accept.means import Means, crowd_of
from nodectl.ledger.accept.steps import BURN, DIAG, STEPS, Level, StepKind
from nodectl.model.acceptance import Step, StepState

# where a budget is too short, these are given up first, in this order
_GIVEN_UP = (
    "storage",
    "groups",
    "nccl-pairs",
    "nics",
    "rdma-node",
    "sdc",
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
    hosts = [host for host in reached if kind.fits(host)]
    # what cannot be reached is said by the first step
    names = tuple(means) if not kind.probe else tuple(host.host for host in hosts)
    step = Step(kind.name, kind.about, str(kind.scope), names)
    if reached and (why := kind.lacking(hosts if hosts else reached)):
        return replace(step, state=StepState.LEFT_OUT, why=why)
    if kind.name == DIAG and not any(host.dcgm for host in hosts):
        return replace(step, state=StepState.LEFT_OUT, why="DCGM's host engine runs on no host")
    seconds = known_s.get(kind.name) or kind.cost_s(options, crowd_of(hosts))
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
