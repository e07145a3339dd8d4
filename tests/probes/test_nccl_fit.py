"""Start-up time and bandwidth out of times by size: exact, noisy, with stalls, and where they cannot be told."""

import random
from collections.abc import Sequence

import pytest

from nodectl.errors import UsageError
from nodectl.probes.nccl.models import fit_alpha_beta

SIZES = [1 << power for power in range(10, 27, 2)]
ALPHA_S, BETA_S = 25e-6, 1 / 12.5e9


def times(noise: float, seed: int = 0, repetitions: int = 5) -> list[tuple[float, float]]:
    draw = random.Random(seed)
    return [
        (size, (ALPHA_S + BETA_S * size) * max(0.1, draw.gauss(1, noise))) for size in SIZES for _ in range(repetitions)
    ]


def test_exact_times_give_the_line() -> None:
    found = fit_alpha_beta(times(0.0))
    assert found.alpha_s == pytest.approx(ALPHA_S)
    assert found.bandwidth_gb_s == pytest.approx(12.5)
    assert found.half_size_bytes == pytest.approx(ALPHA_S / BETA_S)
    assert found.time_s(1 << 30) == pytest.approx(ALPHA_S + BETA_S * (1 << 30))
    assert found.worst < 1e-6


@pytest.mark.parametrize("noise", [0.01, 0.05, 0.1])
def test_the_intervals_hold_the_truth_about_as_often_as_they_say(noise: float) -> None:
    fits = [fit_alpha_beta(times(noise, seed)) for seed in range(200)]
    alpha = sum(each.alpha_interval.low <= ALPHA_S <= each.alpha_interval.high for each in fits)
    beta = sum(each.beta_interval.low <= BETA_S <= each.beta_interval.high for each in fits)
    assert 170 <= alpha <= 200, alpha
    assert 170 <= beta <= 200, beta
    assert all(0.5 < each.error / noise < 1.6 for each in fits)


def test_a_stalled_repetition_hardly_moves_it() -> None:
    spoilt = times(0.02)
    for number in (3, 20, 41):
        spoilt[number] = (spoilt[number][0], 50 * spoilt[number][1])
    found = fit_alpha_beta(spoilt)
    assert found.bandwidth_gb_s == pytest.approx(12.5, rel=0.03)
    assert found.alpha_s == pytest.approx(ALPHA_S, rel=0.05)
    assert found.worst > 0.9


@pytest.mark.parametrize(
    ("samples", "said"),
    [
        ([(1024, 1e-5), (1024, 1.1e-5), (2048, 1e-5)], "needs 3 sizes"),
        ([(1024, 1e-5), (2048, 0.0), (4096, 1e-5)], "no time"),
        ([(1024, 1e-5), (2048, float("nan")), (4096, 1e-5)], "no time"),
        ([(1024, 4e-5), (2048, 3e-5), (4096, 1e-5)], "no longer than small ones"),
    ],
)
def test_what_cannot_be_fitted_says_why(samples: Sequence[tuple[float, float]], said: str) -> None:
    with pytest.raises(UsageError, match=said) as refused:
        fit_alpha_beta(samples)
    assert refused.value.remedy
