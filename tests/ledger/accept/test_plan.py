"""Which steps these hosts are tried with, how long that takes, and what a budget does to it."""

import pytest

from nodectl.errors import UsageError
from nodectl.ledger.accept.steps import STEPS, Level, make_plan
from nodectl.model.acceptance import Step, StepState
from tests.ledger.accept.made import NAMES, means

_GPUS = {"gpus": 8, "rdma": True, "dcgm": True, "machine": ""}


def _taken(steps: tuple[Step, ...]) -> list[str]:
    return [step.name for step in steps if step.state is StepState.WAITING]


def _why(steps: tuple[Step, ...]) -> dict[str, str]:
    return {step.name: step.why for step in steps if step.state is StepState.LEFT_OUT}


def test_what_the_hosts_lack_is_left_out_with_its_reason() -> None:
    steps = make_plan(means(), Level.STANDARD, None, {})
    assert _taken(steps) == [
        *("health", "memory", "gemm", "gemm-bits", "tcp", "nccl-pairs", "nccl", "training"),
    ]
    assert _why(steps)["h2d"] == _why(steps)["dcgm"] == "no host has a GPU"
    assert _why(steps)["rdma"] == "no host has an RDMA device"


def test_gpus_are_tried_alone_before_pairs_and_all_together() -> None:
    names = _taken(make_plan(means(**_GPUS), Level.STANDARD, None, {}))
    assert names == [kind.name for kind in STEPS if kind.name not in ("burn-in", "health-after")]
    wanted = ("health", "gemm", "p2p", "nccl-node", "rdma-node", "tcp", "rdma", "nccl", "training")
    order = [names.index(name) for name in wanted]
    assert order == sorted(order)


def test_cards_for_players_are_diagnosed_at_the_first_level_alone() -> None:
    dcgm = next(kind for kind in STEPS if kind.name == "dcgm")
    for consumer, runs in ((False, [1, 2, 3]), (True, [1, 1, 1])):
        hosts = list(means(**_GPUS, consumer=consumer).values())
        asked = [dcgm.options(level, hosts) for level in (Level.QUICK, Level.STANDARD, Level.BURN_IN)]
        assert [options["run"] for options in asked if options] == runs


def test_hosts_of_one_machine_take_turns_in_the_plan() -> None:
    apart = {name: means(name, machine=name)[name] for name in NAMES}
    together = {step.name: step.planned_s for step in make_plan(means(), Level.QUICK, None, {})}
    alone = {step.name: step.planned_s for step in make_plan(apart, Level.QUICK, None, {})}
    assert together["gemm"] == pytest.approx(8 * alone["gemm"], rel=0.02)


def test_a_budget_takes_of_each_then_leaves_out() -> None:
    whole = sum(step.planned_s for step in make_plan(means(), Level.STANDARD, None, {}))
    less = make_plan(means(), Level.STANDARD, 0.8 * whole, {})
    assert len(_taken(less)) == 8
    assert sum(step.planned_s for step in less) == pytest.approx(0.8 * whole, rel=0.01)
    few = make_plan(means(), Level.STANDARD, 0.35 * whole, {})
    assert "health" in _taken(few)
    assert "no room" in _why(few)["nccl-pairs"]
    assert sum(step.planned_s for step in few) <= 0.35 * whole + 1
    with pytest.raises(UsageError, match="takes at least"):
        make_plan(means(), Level.STANDARD, 1.0, {})


def test_a_burn_in_is_under_load_for_what_is_left() -> None:
    steps = {step.name: step for step in make_plan(means(), Level.BURN_IN, 8 * 3600.0, {})}
    others = sum(step.planned_s for step in steps.values() if step.name != "burn-in")
    assert steps["burn-in"].planned_s == pytest.approx(8 * 3600.0 - others, abs=2)
    assert others < 3600
