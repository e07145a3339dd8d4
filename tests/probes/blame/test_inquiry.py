"""Inquiries into simulated fleets: right nearly always, nobody healthy blamed, and not more measured than needed."""

import math
import random

import pytest

from nodectl.probes.blame.fit import Cause, Reading
from nodectl.probes.blame.inquiry import STAGES, Inquiry
from nodectl.probes.rounds import all_pairs, ring, sampled
from tests.probes.blame.simulated import KINDS, Fleet, investigate, scenario

NAMES = tuple(f"n{number:02}" for number in range(8))
_MOST_AGAIN = 8


def fleet(noise: float, seed: int = 1, **faults: float) -> Fleet:
    """`n03=0.5` is a slow host."""
    causes = {Cause("host", (name,), "both"): left for name, left in faults.items()}
    return Fleet(NAMES, noise, random.Random(seed), causes, bursts=0.0)


def test_small_fleets_measured_whole() -> None:
    cases = [scenario(kind, 8 + seed % 9, None, 1000 + seed) for kind in KINDS for seed in range(30)]
    assert not any(case.false_blame for case in cases)
    assert sum(case.right for case in cases) >= math.ceil(0.97 * len(cases))
    assert all(case.right for case in cases if case.kind == "none")


@pytest.mark.parametrize("kind", ["none", "host", "direction"])
def test_a_thousand_hosts_in_log_n_rounds(kind: str) -> None:
    case = scenario(kind, 1000, 10, seed=77)
    assert case.right
    assert case.fleet.measured <= 10 + STAGES * _MOST_AGAIN


def test_five_hosts_are_enough_for_one_fault() -> None:
    cases = [scenario(kind, 5, None, seed) for kind in KINDS[:-1] for seed in range(10)]
    assert sum(case.right for case in cases) >= math.ceil(0.97 * len(cases))
    assert not any(case.false_blame for case in cases)


def test_a_healthy_fleet_costs_no_round_more() -> None:
    healthy = fleet(0.02)
    plan = all_pairs(NAMES)
    assert investigate(healthy, plan).blamed == ()
    assert healthy.measured == len(plan)


def test_one_disturbed_measurement_blames_nobody() -> None:
    inquiry = Inquiry()
    first = fleet(0.02).measure(all_pairs(NAMES))
    first[9] = Reading(*first[9].link, 0.2 * first[9].value)
    inquiry.add(first)
    rounds = inquiry.next_rounds()
    assert any(set(first[9].link) == set(pair) for each in rounds for pair in each)
    inquiry.add(fleet(0.02, seed=2).measure(rounds))
    assert inquiry.next_rounds() == []
    assert inquiry.verdict().blamed == ()


def test_a_suspect_meets_good_hosts_and_healthy_pairs_run_beside_it() -> None:
    slow = fleet(0.02, n03=0.5)
    inquiry = Inquiry()
    inquiry.add(slow.measure(ring(NAMES)))
    rounds = inquiry.next_rounds()
    met = [pair for each in rounds for pair in each if "n03" in pair]
    assert len({frozenset(pair) for pair in met}) >= 2
    for each in rounds:
        names = [name for pair in each for name in pair]
        assert len(names) == len(set(names))
        assert len(each) > 1
    inquiry.add(slow.measure(rounds))
    assert [each.suspect.cause for each in inquiry.verdict().blamed] == [Cause("host", ("n03",), "both")]


def test_what_all_are_faster_at_later_is_no_fault_then() -> None:
    """When fewer pairs run, each gets more: a slow host is measured against those beside it."""
    slow = fleet(0.02, n03=0.5)
    inquiry = Inquiry()
    inquiry.add(slow.measure(all_pairs(NAMES)))
    while rounds := inquiry.next_rounds():
        inquiry.add(Reading(each.sender, each.receiver, 2 * each.value) for each in slow.measure(rounds))
    (blamed,) = inquiry.verdict().blamed
    assert blamed.suspect.share == pytest.approx(0.5, rel=0.1)


def test_a_load_that_was_there_at_first_only_blames_nobody() -> None:
    busy, idle = fleet(0.02, n03=0.3), fleet(0.02, seed=4)
    inquiry = Inquiry()
    inquiry.add(busy.measure(all_pairs(NAMES)))
    while rounds := inquiry.next_rounds():
        inquiry.add(idle.measure(rounds))
    assert inquiry.verdict().blamed == ()


@pytest.mark.parametrize("names", [(), ("a",), ("a", "b")])
def test_two_hosts_are_too_few_to_ask_on(names: tuple[str, ...]) -> None:
    inquiry = Inquiry()
    inquiry.add(Reading(a, b, 1.0 if a < b else 0.1) for a in names for b in names if a != b)
    assert inquiry.next_rounds() == []
    assert inquiry.verdict().blamed == ()


def test_a_suspect_that_cannot_be_measured_again_is_unsettled() -> None:
    slow = fleet(0.01, n03=0.4)
    inquiry = Inquiry()
    inquiry.add(slow.measure(all_pairs(NAMES)))
    while rounds := inquiry.next_rounds():
        inquiry.add(each for each in slow.measure(rounds) if "n03" not in each.link)
    verdict = inquiry.verdict()
    assert verdict.blamed == ()
    assert [each.cause for each in verdict.unsettled] == [Cause("host", ("n03",), "both")]


def test_a_path_both_ways_of_different_depth_is_one_path() -> None:
    causes: dict[Cause, float] = {Cause("direction", ("n01", "n02")): 0.3, Cause("direction", ("n02", "n01")): 0.7}
    found = investigate(Fleet(NAMES, 0.02, random.Random(3), causes, bursts=0.0), all_pairs(NAMES))
    assert [each.suspect.cause for each in found.blamed] == [Cause("path", ("n01", "n02"))]


def test_a_hundred_hosts_of_four_switches_with_one_bad_way_out() -> None:
    names = tuple(f"h{number:03}" for number in range(96))
    switch_of = {name: f"leaf{number % 4}" for number, name in enumerate(names)}
    members = tuple(name for name in names if switch_of[name] == "leaf2")
    cause = Cause("switch", members, name="leaf2")
    found = investigate(
        Fleet(names, 0.03, random.Random(8), {cause: 0.6}, bursts=0.0), sampled(names, 12), Inquiry(switch_of)
    )
    assert [each.suspect.cause for each in found.blamed] == [cause]


def test_rounds_asked_again_never_have_a_host_twice() -> None:
    draw = random.Random(6)
    chaos: dict[Cause, float] = {Cause("host", (name,), "in"): draw.uniform(0.1, 0.9) for name in NAMES[:5]}
    inquiry = Inquiry()
    many = Fleet(NAMES, 0.05, draw, chaos)
    inquiry.add(many.measure(all_pairs(NAMES)))
    stages = 0
    while rounds := inquiry.next_rounds():
        stages += 1
        assert len(rounds) <= _MOST_AGAIN
        for each in rounds:
            names = [name for pair in each for name in pair]
            assert len(names) == len(set(names))
        inquiry.add(many.measure(rounds))
    assert stages <= STAGES
