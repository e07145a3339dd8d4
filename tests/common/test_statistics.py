"""Robust deviations, and quantiles of Student's t as tables print them."""

import random
from statistics import stdev

import pytest

from nodectl.common.statistics import robust_deviation, student_t

TABLE = [
    *((0.975, 1, 12.706), (0.975, 2, 4.303), (0.975, 3, 3.182), (0.975, 4, 2.776), (0.975, 9, 2.262)),
    *((0.975, 19, 2.093), (0.975, 60, 2.000), (0.95, 4, 2.132), (0.95, 9, 1.833), (0.95, 99, 1.660)),
]


@pytest.mark.parametrize(("probability", "degrees", "quantile"), TABLE)
def test_quantiles_are_those_of_the_table(probability: float, degrees: int, quantile: float) -> None:
    assert student_t(probability, degrees) == pytest.approx(quantile, abs=0.0006)
    assert student_t(1 - probability, degrees) == pytest.approx(-quantile, abs=0.0006)


@pytest.mark.parametrize(("probability", "degrees"), [(0.0, 3), (1.0, 3), (0.975, 0)])
def test_what_no_table_holds_is_refused(probability: float, degrees: int) -> None:
    with pytest.raises(ValueError, match="no t quantile"):
        student_t(probability, degrees)


def test_normal_values_have_their_standard_deviation_and_outliers_hardly_move_it() -> None:
    chance = random.Random(1)
    values = [chance.gauss(10, 2) for _ in range(4001)]
    assert robust_deviation(values, 10) == pytest.approx(2, rel=0.05)
    spoilt = [*values, *([1e6] * 40)]
    assert robust_deviation(spoilt, 10) == pytest.approx(2, rel=0.06)
    assert stdev(spoilt) > 1e4
