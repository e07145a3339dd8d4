"""The interval of a mean from few values."""

import random

import pytest

from nodectl.trials.bootstrap import expanded_tail, interval


def test_the_tail_is_cut_further_out_the_fewer_there_are() -> None:
    tails = [expanded_tail(count) for count in (5, 6, 10, 30, 1000)]
    assert tails == sorted(tails)
    assert tails[0] < 0.0011
    assert tails[-1] == pytest.approx(0.025, rel=0.02)


def test_of_five_values_almost_all_resamples_lie_between_the_ends() -> None:
    low, high = interval([1.0, 2.0, 3.0, 4.0, 100.0])
    # 1/3125 of the resamples is the lowest value five times; 5/3125 more have the next lowest mean
    assert low == pytest.approx(1.2)
    assert high == pytest.approx((4 + 4 * 100) / 5)


def test_equal_values_have_no_width() -> None:
    for count in (5, 12):
        assert interval([0.25] * count) == (0.25, 0.25)


@pytest.mark.parametrize(("count", "trials"), [(5, 500), (10, 200)])
def test_covers_the_truth_about_as_often_as_it_says(count: int, trials: int) -> None:
    chance = random.Random(count)
    hits = 0
    for _ in range(trials):
        low, high = interval([chance.gauss(3, 1) for _ in range(count)])
        hits += low <= 3 <= high
    assert 0.92 <= hits / trials <= 0.985
