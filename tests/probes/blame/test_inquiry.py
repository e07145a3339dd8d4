"""Inquiries into simulated fleets: right nearly always, nobody healthy blamed, and not more measured than needed."""

import math
import random

import pytest

from nodectl.probes.blame.fit import Cause, Reading
from nodectl.probes.blame.inquiry import STAGES, Inquiry
from nodectl.probes.rounds import all_pairs, sampled
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
    inquiry.add(slow.measure(sampled(NAMES, 2)))
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


def test_a_hundred_hosts_of_four_switches_with_one_bad_way_out() -> None:
    names = tuple(f"h{number:03}" for number in range(96))
    switch_of = {name: f"leaf{number % 4}" for number, name in enumerate(names)}
    members = tuple(name for name in names if switch_of[name] == "leaf2")
    cause = Cause("switch", members, name="leaf2")
    found = investigate(
        Fleet(names, 0.03, random.Random(8), {cause: 0.6}, bursts=0.0), sampled(names, 12), Inquiry(switch_of)
    )
    assert [each.suspect.cause for each in found.blamed] == [cause]
