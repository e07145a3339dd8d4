"""Better, noise, worse or nothing to be told: tables of series."""

import random
from dataclasses import replace
from pathlib import Path

import pytest

from nodectl.errors import UsageError
from nodectl.model.measurement import MeasurementKind, Unit
from nodectl.model.trial import Series
from nodectl.model.verdict import Outcome
from nodectl.trials.families import judge_all
from nodectl.trials.store import series_in
from nodectl.trials.verdict import expanded_tail, interval, judge, summarise
from tests.trials.trials import STEADY, gaining, trial

RECORDED = Path(__file__).resolve().parent.parent / "fixtures" / "trials"


@pytest.mark.parametrize(
    ("percent", "unit", "verdict", "gain"),
    [
        (10, "GB/s", Outcome.BETTER, 10),
        (200, "Gbit/s", Outcome.BETTER, 200),
        (-10, "GB/s", Outcome.WORSE, -10),
        (-96, "Gbit/s", Outcome.WORSE, -96),
        (0, "GB/s", Outcome.NOISE, 0),
        # sure, and too little to be worth a setting
        (1.5, "GB/s", Outcome.NOISE, 1.5),
        # less of a time is better
        (-10, "us", Outcome.BETTER, 10),
        (25, "ms", Outcome.WORSE, -25),
        (0.5, "s", Outcome.NOISE, -0.5),
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


def test_two_states_are_no_outliers() -> None:
    # in two of five pairs the candidate is twice as fast: that is not told from chance
    found = judge(trial(STEADY[:5], [20.0, 10.1, 9.9, 20.1, 9.95]))
    assert found.verdict is Outcome.NOISE


def test_a_steady_decline_falls_out_of_the_pairs() -> None:
    # 3 % from one measurement to the next, and the order of each second pair turned round
    speeds = [10 * 0.97**turn for turn in range(20)]
    pairs = [
        (speeds[2 * n], speeds[2 * n + 1]) if n % 2 == 0 else (speeds[2 * n + 1], speeds[2 * n]) for n in range(10)
    ]
    found = judge(trial([a for a, _ in pairs], [b for _, b in pairs]))
    assert found.verdict is Outcome.NOISE
    assert found.gain_percent == pytest.approx(0, abs=0.05)


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


def test_a_unit_points_where_its_probe_declares(monkeypatch: pytest.MonkeyPatch) -> None:
    series = replace(gaining(10, "TFLOPS"), probe="gemm")
    assert judge(series).verdict is Outcome.BETTER
    faults = MeasurementKind(units=(Unit("faults", lower_is_better=True),))
    monkeypatch.setattr("nodectl.trials.verdict.kind_of", lambda probe: faults)
    found = judge(replace(series, unit="faults"))
    assert found.verdict is Outcome.WORSE
    assert found.gain_percent == pytest.approx(-10, abs=0.3)


def test_a_unit_that_points_nowhere_is_refused() -> None:
    with pytest.raises(UsageError, match=r"the unit 'furlongs' is unknown"):
        judge(gaining(10, "furlongs"))


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
