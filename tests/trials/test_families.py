"""Verdicts over many series: what chance does to one of hundreds is no verdict, and what is real is still seen."""

import random

import pytest

from nodectl.model.trial import Pair, Series
from nodectl.model.verdict import Outcome, Summary
from nodectl.trials.families import judge_all, judged

PAIRS = 5


def path(number: int, chance: random.Random, gain: float = 0.0, failing: tuple[float, float] = (0.0, 0.0)) -> Series:
    """A path with 3 % noise; each side fails with its own chance."""

    def value(*, candidate: bool) -> float | None:
        measured = 10 * (1 + gain * candidate) * (1 + chance.gauss(0, 0.03))
        return None if chance.random() < failing[candidate] else measured

    pairs = tuple(Pair(value(candidate=False), value(candidate=True), at % 2 == 1) for at in range(PAIRS))
    return Series("candidate", "stock", "tcp", "Gbit/s", pairs, f"node{number} -> node{number + 1}, streams 1")


def mean_of(paths: list[Series]) -> Series:
    """The fleet's mean of paths that were measured in every turn."""
    whole = [series.complete for series in paths if len(series.complete) == PAIRS]
    columns = [list(zip(*column, strict=True)) for column in zip(*whole, strict=True)]
    pairs = tuple(Pair(sum(base) / len(whole), sum(tried) / len(whole)) for base, tried in columns)
    return Series("candidate", "stock", "tcp", "Gbit/s", pairs, f"mean of {len(whole)} paths, streams 1")


def summary_of(paths: list[Series]) -> Summary:
    _, (summary,) = judged([mean_of(paths), *paths])
    return summary


@pytest.mark.parametrize("with_mean", [True, False])
def test_of_256_series_without_effect_none_says_something(*, with_mean: bool) -> None:
    chance = random.Random(1)
    outcomes = []
    for _ in range(4):
        paths = [path(number, chance) for number in range(256)]
        outcomes.append(judged([*([mean_of(paths)] if with_mean else []), *paths])[1][0].verdict)
    assert outcomes == [Outcome.NOISE] * 4


def test_failures_spread_over_the_fleet_are_seen_and_one_bad_turn_is_chance() -> None:
    def paths(lost: set[tuple[int, int]]) -> list[Series]:
        found = []
        for number in range(20):
            pairs = tuple(Pair(10.0, None if (number, at) in lost else 10.0, at % 2 == 1) for at in range(7))
            found.append(Series("candidate", "stock", "tcp", "Gbit/s", pairs, f"node{number} -> x, streams 1"))
        return [
            Series("candidate", "stock", "tcp", "Gbit/s", (Pair(10.0, 10.0),) * 7, "mean of 9 paths, streams 1"),
            *found,
        ]

    everywhere = judge_all(paths({(at, at) for at in range(7)} | {(at + 7, at) for at in range(7)}))
    assert [verdict.subject for verdict in everywhere if verdict.fails_more] == ["mean of 9 paths, streams 1"]
    assert not any(verdict.fails_more for verdict in judge_all(paths({(number, 3) for number in range(20)})))


def test_one_slow_path_of_128_and_a_gain_of_all_are_seen() -> None:
    chance = random.Random(4)
    paths = [path(number, chance) for number in range(127)] + [path(127, chance, gain=-0.4)]
    assert [verdict.subject for verdict in summary_of(paths).regressions] == ["node127 -> node128, streams 1"]
    assert summary_of([path(number, chance, gain=0.1) for number in range(128)]).verdict is Outcome.BETTER
