"""The course of a trial: whose turn it is, what a failed turn costs, and when all ends."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from nodectl.model.finding import Finding
from nodectl.model.status import Status
from nodectl.model.verdict import Outcome
from nodectl.trials.families import judge_all
from nodectl.trials.series import series_of
from nodectl.trials.turns import Course, Ending, TrialEndError, Turns
from nodectl.trials.verdict import judge
from tests.trials.bench_of_turns import PaperFleet

STOCK, FAST, SLOW = "stock", "fast", "slow"
SPEEDS = {"stock": 10.0, "fast": 12.0, "slow": 8.0, "own": 10.0}


def course(fleet: PaperFleet, *candidates: str, keep: Callable[[], None] = lambda: None) -> Course:
    turns = Turns(fleet.put_on, fleet.lost, fleet.probe, fleet.said.append, fleet.clock)
    return Course(turns, STOCK, candidates, keep, {})


def always(_: float) -> bool:
    return True


def test_a_b_b_a_and_settings_only_where_they_are_not_on() -> None:
    fleet = PaperFleet(SPEEDS)
    kept: list[int] = []
    assert course(fleet, FAST, keep=lambda: kept.append(fleet.measured)).interleave(4, always) == Ending()
    a, b = "measure stock", "measure fast"
    assert fleet.events == ["put stock", a, "put fast", b, b, "put stock", a, a, "put fast", b, b, "put stock", a]
    assert len(kept) == 8
    assert fleet.said[0].startswith("pair 1 of 4, stock: tcp ")


def test_each_candidate_has_its_own_baseline_beside_it_and_meets_the_same_hour() -> None:
    fleet = PaperFleet(SPEEDS)
    both = course(fleet, FAST, SLOW)
    both.interleave(4, always)
    order = [each.removeprefix("measure ") for each in fleet.events if each.startswith("measure")]
    block = ["stock", "fast", "fast", "stock", "stock", "slow", "slow", "stock"]
    assert order == block * 2
    verdicts = [judge(one).verdict for one in series_of("fast", "stock", both.taken[1])]
    assert verdicts == [Outcome.UNKNOWN]  # of four pairs


def test_the_budget_ends_it_after_whole_blocks_of_all() -> None:
    fleet = PaperFleet(SPEEDS)
    both = course(fleet, FAST, SLOW)
    # a block of both takes about 28 s
    ending = both.interleave(10, lambda needed_s: 90 - fleet.now_s >= needed_s)
    assert ending == Ending(trimmed="pairs 10 -> 6")
    assert [len(each) for each in both.taken.values()] == [12, 12]
    assert fleet.now_s <= 90
    ending = course(PaperFleet(SPEEDS), FAST).interleave(10, lambda needed_s: not needed_s)
    assert ending == Ending("the budget was spent after 2 pairs of each, and 5 are needed")


def test_settings_that_cannot_be_put_on_are_failed_turns_and_then_given_up() -> None:
    fleet = PaperFleet(SPEEDS, broken=frozenset({"fast"}))
    both = course(fleet, FAST, SLOW)
    assert both.interleave(10, always) == Ending()
    assert fleet.events.count("put fast") == 2
    (fast,) = series_of("fast", "stock", both.taken[1])
    assert [(pair.baseline is None, pair.candidate is None) for pair in fast.pairs] == [(False, True)] * 2
    (found,) = judge_all([fast])
    assert (found.verdict, found.failed_candidate, found.is_regression) == (Outcome.UNKNOWN, 2, True)
    (slow,) = series_of("slow", "stock", both.taken[2])
    assert judge(slow).verdict is Outcome.WORSE
    (finding,) = both.turns.collected.findings()
    assert (finding.host, finding.status) == ("b", Status.FAILED)
    assert finding.actual == "kernel_settings: no such key (2 of its turns with fast)"


def test_a_side_that_never_measured_anything_is_given_up() -> None:
    both = course(PaperFleet(SPEEDS, unmeasurable=frozenset({"fast"})), FAST, SLOW)
    assert both.interleave(6, always) == Ending()
    assert [len(each) for each in both.taken.values()] == [4, 12]
    (found,) = judge_all(series_of("fast", "stock", both.taken[1]))
    assert found.is_regression


def test_a_host_that_was_not_reached_once_is_asked_again_and_costs_nothing() -> None:
    fleet = PaperFleet(SPEEDS)
    away = [Finding("b", "trial", Status.UNKNOWN, "fast", actual="Connection timed out")]

    def put_on(profile: str) -> tuple[Finding, ...]:
        found = fleet.put_on(profile)
        return (away.pop(),) if profile == FAST and away else found

    one = course(fleet, FAST)
    one.turns.put_on = put_on
    assert one.interleave(6, always) == Ending()
    (series,) = series_of("fast", "stock", one.taken[1])
    assert len(series.complete) == 6
    assert [(each.status, each.actual) for each in one.turns.collected.findings()] == [
        (Status.WARNING, "Connection timed out (1 of its turns with fast)")
    ]


def test_a_host_that_is_lost_ends_it_and_its_turn_does_not_count() -> None:
    fleet = PaperFleet(SPEEDS, lost_after=7)
    one = course(fleet, FAST)
    with pytest.raises(TrialEndError, match="b: no answer for 60 s"):
        one.interleave(10, always)
    assert [len(each) for each in one.taken.values()] == [7]
    (series,) = series_of("fast", "stock", one.taken[1])
    assert len(series.pairs) == 3
