"""The course of a trial: whose turn it is, what a failed turn costs, and when all ends."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from nodectl.model.finding import Finding
from nodectl.model.status import Status
from nodectl.model.verdict import Outcome
from nodectl.trials.families import judge_all
from nodectl.trials.series import Taken, series_of
from nodectl.trials.turns import Course, Ending, TrialEndError, Turns
from nodectl.trials.verdict import judge
from tests.trials.bench_of_turns import PaperFleet

STOCK, FAST, SLOW = "stock", "fast", "slow"
SPEEDS = {"stock": 10.0, "fast": 12.0, "slow": 8.0, "own": 10.0}


def course(fleet: PaperFleet) -> tuple[Turns, dict[int, list[Taken]], list[int]]:
    """The turns over a paper fleet, what was taken, and when it was kept."""
    return Turns(fleet.put_on, fleet.lost, fleet.probe, fleet.said.append, fleet.clock), {}, []


def interleave(
    turns: Turns,
    taken: dict[int, list[Taken]],
    baseline: str,
    candidates: Sequence[str],
    pairs: int,
    has_time: Callable[[float], bool],
    keep: Callable[[], None] = lambda: None,
) -> Ending:
    return Course(turns, baseline, candidates, keep, taken).interleave(pairs, has_time)


def always(_: float) -> bool:
    return True


def test_a_b_b_a_and_settings_only_where_they_are_not_on() -> None:
    fleet = PaperFleet(SPEEDS)
    turns, taken, kept = course(fleet)
    assert interleave(turns, taken, STOCK, [FAST], 4, always, lambda: kept.append(fleet.measured)) == Ending()
    a, b = "measure stock", "measure fast"
    assert fleet.events == ["put stock", a, "put fast", b, b, "put stock", a, a, "put fast", b, b, "put stock", a]
    assert len(kept) == 8
    assert fleet.said[0].startswith("pair 1 of 4, stock: tcp ")


def test_each_candidate_has_its_own_baseline_beside_it_and_meets_the_same_hour() -> None:
    fleet = PaperFleet(SPEEDS)
    turns, taken, _ = course(fleet)
    interleave(turns, taken, STOCK, [FAST, SLOW], 4, always)
    order = [each.removeprefix("measure ") for each in fleet.events if each.startswith("measure")]
    block = ["stock", "fast", "fast", "stock", "stock", "slow", "slow", "stock"]
    assert order == block * 2
    verdicts = [judge(one).verdict for one in series_of("fast", "stock", taken[1])]
    assert verdicts == [Outcome.UNKNOWN]  # of four pairs


def test_the_budget_ends_it_after_whole_blocks_of_all() -> None:
    fleet = PaperFleet(SPEEDS)
    turns, taken, _ = course(fleet)
    # a block of both takes about 28 s
    ending = interleave(turns, taken, STOCK, [FAST, SLOW], 10, lambda needed_s: 90 - fleet.now_s >= needed_s)
    assert ending == Ending(trimmed="pairs 10 -> 6")
    assert [len(each) for each in taken.values()] == [12, 12]
    assert fleet.now_s <= 90
    ending = interleave(*course(PaperFleet(SPEEDS))[:2], STOCK, [FAST], 10, lambda needed_s: not needed_s)
    assert ending == Ending("the budget was spent after 2 pairs of each, and 5 are needed")


def test_settings_that_cannot_be_put_on_are_failed_turns_and_then_given_up() -> None:
    fleet = PaperFleet(SPEEDS, broken=frozenset({"fast"}))
    turns, taken, _ = course(fleet)
    assert interleave(turns, taken, STOCK, [FAST, SLOW], 10, always) == Ending()
    assert fleet.events.count("put fast") == 2
    (fast,) = series_of("fast", "stock", taken[1])
    assert [(pair.baseline is None, pair.candidate is None) for pair in fast.pairs] == [(False, True)] * 2
    (found,) = judge_all([fast])
    assert (found.verdict, found.failed_candidate, found.is_regression) == (Outcome.UNKNOWN, 2, True)
    (slow,) = series_of("slow", "stock", taken[2])
    assert judge(slow).verdict is Outcome.WORSE
    (finding,) = turns.collected.findings()
    assert (finding.host, finding.status) == ("b", Status.FAILED)
    assert finding.actual == "kernel_settings: no such key (2 of its turns with fast)"


def test_a_side_that_never_measured_anything_is_given_up() -> None:
    turns, taken, _ = course(PaperFleet(SPEEDS, unmeasurable=frozenset({"fast"})))
    assert interleave(turns, taken, STOCK, [FAST, SLOW], 6, always) == Ending()
    assert [len(each) for each in taken.values()] == [4, 12]
    (found,) = judge_all(series_of("fast", "stock", taken[1]))
    assert found.is_regression


def test_a_host_that_was_not_reached_once_is_asked_again_and_costs_nothing() -> None:
    fleet = PaperFleet(SPEEDS)
    away = [Finding("b", "trial", Status.UNKNOWN, "fast", actual="Connection timed out")]

    def put_on(profile: str) -> tuple[Finding, ...]:
        found = fleet.put_on(profile)
        return (away.pop(),) if profile == FAST and away else found

    turns, taken, _ = course(fleet)
    turns.put_on = put_on
    assert interleave(turns, taken, STOCK, [FAST], 6, always) == Ending()
    (series,) = series_of("fast", "stock", taken[1])
    assert len(series.complete) == 6
    assert [(each.status, each.actual) for each in turns.collected.findings()] == [
        (Status.WARNING, "Connection timed out (1 of its turns with fast)")
    ]


def test_a_host_that_is_lost_ends_it_and_its_turn_does_not_count() -> None:
    fleet = PaperFleet(SPEEDS, lost_after=7)
    turns, taken, _ = course(fleet)
    with pytest.raises(TrialEndError, match="b: no answer for 60 s"):
        interleave(turns, taken, STOCK, [FAST], 10, always)
    assert [len(each) for each in taken.values()] == [7]
    (series,) = series_of("fast", "stock", taken[1])
    assert len(series.pairs) == 3
