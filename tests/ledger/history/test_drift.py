"""Slow change: seen where it is, not where values only scatter, and told apart from what all hosts share."""

import random

import pytest

from nodectl.ledger.history.compare import drift, drifts
from nodectl.ledger.history.store import Point, identity_of
from tests.ledger.history.measured import memory

DAY_S = 86400.0


def points(values: list[float]) -> list[tuple[float, float]]:
    """One a day."""
    return [(DAY_S * day, value) for day, value in enumerate(values)]


def steady(count: int, seed: int, noise: float = 0.01, factor: float = 1.0) -> list[float]:
    """Values that scatter about 100."""
    chance = random.Random(seed)
    return [factor * 100 * (1 + chance.gauss(0, noise)) for _ in range(count)]


def test_a_step_is_seen() -> None:
    found = drift(points(steady(20, 1) + steady(6, 2, factor=0.9)), lower_better=False)
    assert found is not None
    assert found.change_percent == pytest.approx(-10, abs=2)
    assert found.points == 26


def test_a_slow_decline_is_seen_with_its_slope() -> None:
    values = [value * (1 - 0.004 * day) for day, value in enumerate(steady(40, 3))]
    found = drift(points(values), lower_better=False)
    assert found is not None
    assert found.slope_percent == pytest.approx(-12, abs=2)
    assert found.change_percent < -5


def test_a_latency_that_rises_is_worse_and_one_that_falls_is_not() -> None:
    up, down = (points(steady(15, 1) + steady(6, 2, factor=factor)) for factor in (1.2, 0.8))
    assert drift(up, lower_better=True) is not None
    assert drift(down, lower_better=True) is None
    assert drift(up, lower_better=False) is None


@pytest.mark.parametrize("count", [0, 1, 5, 9])
def test_too_few_points_have_no_past(count: int) -> None:
    assert drift(points(([100.0] * 5 + [50.0] * 5)[:count]), lower_better=False) is None


@pytest.mark.parametrize("bad_days", [1, 2])
def test_a_bad_day_is_no_drift(bad_days: int) -> None:
    for place in range(10, 30):
        values = steady(30, place)
        values[place - bad_days : place] = [40.0] * bad_days
        if place < 29 - bad_days:
            assert drift(points(values), lower_better=False) is None


@pytest.mark.parametrize("noise", [0.001, 0.01, 0.03, 0.1])
def test_scatter_alone_is_seldom_taken_for_drift(noise: float) -> None:
    false = sum(drift(points(steady(30, seed, noise)), lower_better=False) is not None for seed in range(500))
    assert false <= 10


def test_a_rate_that_came_down_to_nothing_has_drifted_and_one_that_never_was_has_not() -> None:
    found = drift(points([*steady(20, 1), 0.0, 0.0, 0.0, 0.0]), lower_better=False)
    assert found is not None and found.change_percent == -100
    assert drift(points([0.0] * 20), lower_better=False) is None
    assert drift(points([0.0] * 10 + steady(10, 1)), lower_better=False) is None
    # no path takes no time
    assert drift(points([*steady(20, 1), 0.0, 0.0, 0.0, 0.0]), lower_better=True) is None


def fleet(factors: dict[str, list[float]], seed: int = 1) -> list[Point]:
    """Runs of the memory probe, one a day: host → a factor for each day."""
    chance = random.Random(seed)
    found = []
    for day in range(len(next(iter(factors.values())))):
        for host, each in factors.items():
            value = 20 * each[day] * (1 + chance.gauss(0, 0.005))
            found.append(Point(day, DAY_S * day, identity_of(memory(host, value)).key, value))
    return found


GOOD = [1.0] * 24
STEP = [1.0] * 16 + [0.88] * 8


def said(found: list[Point]) -> dict[str, str]:
    """Host → how the finding ends."""
    return {each.host: each.actual.partition("runs, ")[2] for each in drifts(found).values()}


def test_one_host_declines_against_its_peers() -> None:
    hosts = {f"gpu{n}": GOOD for n in range(7)} | {"gpu7": STEP}
    assert said(fleet(hosts)) == {"gpu7": "and against its peers"}
    (found,) = drifts(fleet(hosts)).values()
    assert (found.kind, found.hosts, found.status) == ("host", ("gpu7",), "warning")
    assert found.expected.endswith("GB/s")


def test_all_decline_together() -> None:
    found = said(fleet({f"gpu{n}": STEP for n in range(6)}))
    assert set(found.values()) == {"its peers with it: look for what all share"}
    assert len(found) == 6


def test_one_alone_stays_while_the_others_gain() -> None:
    better = [1.0] * 16 + [1.15] * 8
    hosts = {f"gpu{n}": better for n in range(7)} | {"gpu7": GOOD}
    assert said(fleet(hosts)) == {"gpu7": "while its own figures stay: the others got better, it did not"}
