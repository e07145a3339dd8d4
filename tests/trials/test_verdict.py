"""Better, noise, worse or nothing to be told: tables of series."""

import random
from pathlib import Path

import pytest

from nodectl.errors import UsageError
from nodectl.model.trial import Series
from nodectl.model.verdict import Outcome
from nodectl.trials.families import judge_all
from nodectl.trials.verdict import interval, judge, summarise
from tests.trials.trials import STEADY, gaining, series_in, trial

RECORDED = Path(__file__).resolve().parent.parent / "fixtures" / "trials"


@pytest.mark.parametrize(
    ("percent", "unit", "verdict", "gain"),
    [
        (10, "GB/s", Outcome.BETTER, 10),
        (-10, "GB/s", Outcome.WORSE, -10),
        (0, "GB/s", Outcome.NOISE, 0),
        (1.5, "GB/s", Outcome.NOISE, 1.5),
        (-10, "us", Outcome.BETTER, 10),
        (25, "ms", Outcome.WORSE, -25),
    ],
)
def test_verdicts(percent: float, unit: str, verdict: Outcome, gain: float) -> None:
    found = judge(gaining(percent, unit))
    assert found.verdict is verdict
    assert found.gain_percent is not None
    assert found.interval_percent is not None
    assert found.gain_percent == pytest.approx(gain, abs=0.3)
    low, high = found.interval_percent
    assert low <= found.gain_percent <= high
    assert found.pairs == 10
    assert (found.profile, found.baseline, found.probe, found.unit) == ("candidate", "stock", "nccl", unit)


def test_the_noise_of_the_baseline_hides_what_is_smaller() -> None:
    baseline = (10.0, 13.0, 9.0, 12.5, 9.5, 13.5, 8.8, 12.0, 9.9, 13.0)
    found = judge(trial(baseline, [1.06 * each for each in baseline]))
    assert found.noise_percent is not None
    # each pair gains exactly 6 %, and yet the baseline alone comes to more
    assert found.interval_percent is not None
    assert list(found.interval_percent) == pytest.approx([6, 6])
    assert found.noise_percent > 6
    assert found.verdict is Outcome.NOISE


@pytest.mark.parametrize("pairs", [5, 10])
@pytest.mark.parametrize("stalled", ["baseline", "candidate"])
@pytest.mark.parametrize(("percent", "verdict"), [(30, "better"), (-30, "worse"), (0, "noise")])
def test_one_stalled_repetition_flips_nothing(pairs: int, stalled: str, percent: float, verdict: str) -> None:
    series = gaining(percent, pairs=pairs)
    baseline = [pair.baseline for pair in series.pairs]
    candidate = [pair.candidate for pair in series.pairs]
    hit = baseline if stalled == "baseline" else candidate
    for place in range(pairs):
        one = hit.copy()
        one[place] = 0.05
        lists = (one, candidate) if stalled == "baseline" else (baseline, one)
        found = judge(trial(*lists))
        assert (found.verdict, found.outliers) == (verdict, 1)


@pytest.mark.parametrize("pairs", [0, 1, 4])
def test_too_few_pairs_are_no_verdict(pairs: int) -> None:
    found = judge(gaining(200, pairs=pairs))
    assert found.verdict is Outcome.UNKNOWN
    assert (found.gain_percent, found.interval_percent) == (None, None)
    assert found.reason == f"too few pairs: {pairs} of {pairs} are complete, and 5 are needed"


def test_a_failed_repetition_takes_its_pair_with_it_and_is_told() -> None:
    (found,) = judge_all([trial([*STEADY[:5], 10.0], [*(2 * each for each in STEADY[:5]), None])])
    assert (found.verdict, found.pairs, found.failed_candidate, found.failed_baseline) == (Outcome.BETTER, 5, 1, 0)
    # one reset is no regression: either side may have it
    assert not found.is_regression
    both = judge(trial([*STEADY[:5], None, 10.0], [*(2 * each for each in STEADY[:5]), 20.0, None]))
    assert not both.is_regression


@pytest.mark.parametrize("value", [0.0, -1.0, float("nan"), float("inf"), 1e308, 5e-324])
def test_what_is_no_speed_is_refused(value: float) -> None:
    for lists in (([*STEADY[:5], value], [*STEADY[:5], 1.0]), ([*STEADY[:5], value], [*STEADY[:5], None])):
        with pytest.raises(UsageError, match="no speed"):
            judge(trial(*lists))


@pytest.mark.parametrize(
    ("percents", "verdict"),
    [
        ((10, 0), Outcome.BETTER),
        ((0, 0.5), Outcome.NOISE),
        ((200, -5), Outcome.WORSE),
        ((), Outcome.UNKNOWN),
    ],
)
def test_a_regression_at_any_size_counts(percents: tuple[float, ...], verdict: Outcome) -> None:
    found = [judge(gaining(each, size_bytes=1 << place)) for place, each in enumerate(percents)]
    summary = summarise("candidate", found)
    assert summary.verdict is verdict
    assert [each.size_bytes for each in summary.regressions] == [1 << n for n, each in enumerate(percents) if each < -2]
    assert [each.size_bytes for each in summary.wins] == [1 << n for n, each in enumerate(percents) if each > 2]


def recorded() -> list[tuple[str, Series]]:
    """Each file is first named for what the two tunings are known to be."""
    return [
        (path.stem.partition("-")[0], series) for path in sorted(RECORDED.glob("*.json")) for series in series_in(path)
    ]


@pytest.mark.parametrize(("known", "series"), recorded(), ids=lambda each: getattr(each, "subject", each))
def test_recorded_series_have_their_verdict_by_any_seed(known: str, series: Series) -> None:
    assert [judge(series, seed).verdict for seed in range(3)] == [Outcome(known)] * 3


# the interval of a mean from few values


@pytest.mark.parametrize(("count", "trials"), [(5, 500), (10, 200)])
def test_covers_the_truth_about_as_often_as_it_says(count: int, trials: int) -> None:
    chance = random.Random(count)
    hits = 0
    for _ in range(trials):
        low, high = interval([chance.gauss(3, 1) for _ in range(count)])
        hits += low <= 3 <= high
    assert 0.92 <= hits / trials <= 0.985
