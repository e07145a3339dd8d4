"""The course of a trial: whose turn it is, what a failed turn costs, and when all ends."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import pytest

from nodectl.model.finding import Finding
from nodectl.model.status import Status
from nodectl.model.trial import Ranked, Side
from nodectl.model.verdict import Outcome
from nodectl.probes.base import ProbeResult
from nodectl.trials.course import Course, Ending, ranking
from nodectl.trials.families import judge_all
from nodectl.trials.series import Taken, series_of
from nodectl.trials.turns import TrialEndError, Turns
from nodectl.trials.verdict import judge
from tests.trials.bench_of_turns import PaperFleet

STOCK, FAST, SLOW = Side("stock", "stock"), Side("fast", "fast"), Side("slow", "slow")
SPEEDS = {"stock": 10.0, "fast": 12.0, "slow": 8.0, "own": 10.0}


def course(fleet: PaperFleet) -> tuple[Turns, dict[int, list[Taken]], list[int]]:
    """The turns over a paper fleet, what was taken, and when it was kept."""
    return Turns(fleet.put_on, fleet.lost, fleet.measure, fleet.said.append, fleet.clock), {}, []


def interleave(
    turns: Turns,
    taken: dict[int, list[Taken]],
    baseline: Side,
    candidates: Sequence[Side],
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


def test_what_differs_in_the_launch_alone_is_put_on_once() -> None:
    fleet = PaperFleet(SPEEDS)
    turns, taken, _ = course(fleet)
    quick = Side("quick", "stock", run_with={"--compress": "bf16"})
    interleave(turns, taken, STOCK, [quick, Side("fast", "fast", run_with={"--compress": "bf16"})], 2, always)
    assert [event for event in fleet.events if event.startswith("put")] == ["put stock", "put fast", "put stock"]
    assert len([event for event in fleet.events if event.startswith("measure")]) == 8
    # a side against itself feels what putting on disturbs
    fleet = PaperFleet(SPEEDS)
    turns, taken, _ = course(fleet)
    interleave(turns, taken, STOCK, [STOCK], 2, always)
    assert len([event for event in fleet.events if event.startswith("put")]) == 3


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


def test_a_host_that_was_not_reached_once_is_asked_again_and_costs_nothing() -> None:
    fleet = PaperFleet(SPEEDS)
    away = [Finding("b", "trial", Status.UNKNOWN, "fast", actual="Connection timed out")]

    def put_on(side: Side) -> tuple[Finding, ...]:
        found = fleet.put_on(side)
        return (away.pop(),) if side == FAST and away else found

    turns, taken, _ = course(fleet)
    turns.put_on = put_on
    assert interleave(turns, taken, STOCK, [FAST], 6, always) == Ending()
    (series,) = series_of("fast", "stock", taken[1])
    assert len(series.complete) == 6
    assert [(each.status, each.actual) for each in turns.collected.findings()] == [
        (Status.WARNING, "Connection timed out (1 of its turns with fast)")
    ]


def test_a_candidate_under_which_nothing_works_has_no_verdict_and_is_a_regression() -> None:
    fleet = PaperFleet(SPEEDS, unmeasurable=frozenset({"fast"}))
    turns, taken, _ = course(fleet)
    assert interleave(turns, taken, STOCK, [FAST], 10, always) == Ending()
    (series,) = series_of("fast", "stock", taken[1])
    assert judge_all([series])[0].is_regression
    (finding,) = turns.collected.findings()
    assert "pair 1 of 10, fast: nothing measured: a -> b: connection refused" in fleet.said
    # the verdict says what it comes to
    assert (finding.status, finding.actual) == (Status.WARNING, "connection refused (10 of its turns with fast)")


def test_a_host_that_is_lost_ends_it_and_its_turn_does_not_count() -> None:
    fleet = PaperFleet(SPEEDS, lost_after=7)
    turns, taken, _ = course(fleet)
    with pytest.raises(TrialEndError, match="b: no answer for 60 s"):
        interleave(turns, taken, STOCK, [FAST], 10, always)
    assert [len(each) for each in taken.values()] == [7]
    (series,) = series_of("fast", "stock", taken[1])
    assert len(series.pairs) == 3


def test_three_silent_turns_end_it() -> None:
    fleet = PaperFleet(SPEEDS, unmeasurable=frozenset({"fast", "stock"}))
    turns, taken, _ = course(fleet)
    with pytest.raises(TrialEndError, match="nothing could be measured in 3 turns"):
        interleave(turns, taken, STOCK, [FAST], 10, always)
    assert fleet.measured == 3


SPACE = [Side(f"c{number}") for number in range(12)]


def searched(fleet: PaperFleet, budget_s: float, pairs: int = 10) -> tuple[tuple[Ranked, ...], int | None, int, Ending]:
    turns, taken, _ = course(fleet)
    best, ending = Course(turns, STOCK, SPACE, lambda: None, taken).search(pairs, budget_s)
    number, fresh = best or (None, ())
    assert [row.turn.pair for row in fresh] == sorted(row.turn.pair for row in fresh)
    # only the fresh pairs of the best are judged, and those were taken A B B A
    order = [row.turn.candidate for row in fresh]
    assert all(order[4 * n + 1 : 4 * n + 3] in ([True, True], [False, False]) for n in range(len(order) // 4))
    assert sum(order) == len(order) // 2
    return ranking(SPACE, taken, ()), number, len(fresh), ending


def speeds(of: Callable[[int], float]) -> dict[str, float]:
    return {"stock": 10.0, **{side.label: of(number) for number, side in enumerate(SPACE)}}


@pytest.mark.parametrize("best", [0, 5, 11])
def test_the_win_is_found_within_the_budget(best: int) -> None:
    fleet = PaperFleet(speeds(lambda number: 30.0 if number == best else 10.0), noise=0.03)
    ranks, number, final, ending = searched(fleet, budget_s=600)
    assert (number, final, ending) == (best + 1, 20, Ending())
    assert fleet.now_s <= 600
    first = ranks[0]
    assert first.label == f"c{best}"
    assert first.gain_percent == pytest.approx(200, rel=0.1)


def test_a_budget_too_small_for_all_says_who_was_not_tried() -> None:
    fleet = PaperFleet(speeds(lambda _: 12.0))
    _, number, final, ending = searched(fleet, budget_s=150)
    assert fleet.now_s <= 150
    assert (number is not None, final, ending.reason) == (True, 20, "")
    assert "of 12 candidates were not tried" in ending.trimmed


def test_a_baseline_that_fails_once_does_not_cost_a_candidate() -> None:
    fleet = PaperFleet(speeds(lambda number: 30.0 if number == 0 else 10.0))
    failing = {1}

    def now_and_then(turn: int) -> None:
        fleet.unmeasurable = frozenset({"stock"}) if turn in failing else frozenset()

    fleet.on_turn = now_and_then
    ranks, number, _, _ = searched(fleet, budget_s=2000)
    assert number == 1
    assert (ranks[0].label, ranks[0].failed) == ("c0", False)


def test_a_pair_that_was_lost_by_chance_is_measured_again() -> None:
    fleet = PaperFleet(SPEEDS)
    turns, taken, _ = course(fleet)

    def measure(side: Side) -> ProbeResult:
        result = fleet.measure(side)
        return ProbeResult() if fleet.measured == 3 else result

    turns.measure = measure
    interleave(turns, taken, STOCK, [FAST], 5, always)
    (series,) = series_of("fast", "stock", taken[1])
    assert (len(series.pairs), len(series.complete)) == (6, 5)
    # its own failure stays counted
    assert judge(series).failed_candidate == 1
    # what never could be measured on a side is no chance
    broken = PaperFleet(SPEEDS, unmeasurable=frozenset({"fast"}))
    turns, taken, _ = course(broken)
    interleave(turns, taken, STOCK, [FAST], 5, always)
    assert broken.measured == 10


def test_the_first_estimate_counts_the_changes_of_settings() -> None:
    fleet = PaperFleet(SPEEDS, turn_s=2.0, put_s=50.0)
    turns, taken, _ = course(fleet)
    interleave(turns, taken, STOCK, [FAST], 10, always)
    first = next(line for line in fleet.said if line.startswith("tune trial: about"))
    assert fleet.said.index(first) <= 1  # as soon as one change and one turn have been measured
    told = re.search(r"(?:(\d+) min )?(?:(\d+) s )?in all", first)
    assert told is not None
    told_s = 60 * int(told[1] or 0) + int(told[2] or 0)
    assert 0.75 * fleet.now_s <= told_s <= 1.25 * fleet.now_s
