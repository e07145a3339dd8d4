"""Buffers against bandwidth x delay: the article's arithmetic, and runs that were measured in the lab."""

import math
import random

import pytest

from nodectl.errors import UsageError
from nodectl.predict.bdp import BufferRun, bdp_bytes, covered_rtt_s, fit_shares, needed_bytes

KIB, MIB = 1 << 10, 1 << 20
# one flow between two lab hosts (kernel 6.18, bbr): receive maximum, send maximum, round trip, reached, link
LAB = (
    BufferRun(208 * KIB, 208 * KIB, 0.020, 0.05e9),
    BufferRun(1 * MIB, 1 * MIB, 0.020, 0.27e9),
    BufferRun(32 * MIB, 4 * MIB, 0.020, 1.38e9),
    BufferRun(16 * MIB, 16 * MIB, 0.020, 4.27e9),
    BufferRun(64 * MIB, 64 * MIB, 0.020, 14.6e9, 14.6e9),
    BufferRun(6 * MIB, 4 * MIB, 0.100, 0.281e9, 1e9),
    BufferRun(16 * MIB, 16 * MIB, 0.100, 0.875e9, 1e9),
)


def test_sixteen_mebibytes_at_20_gbit() -> None:
    assert covered_rtt_s(16 * MIB, 20e9) == pytest.approx(6.71e-3, rel=1e-3)
    assert covered_rtt_s(16 * MIB, 20e9, share=0.6) == pytest.approx(4.03e-3, rel=1e-3)
    assert bdp_bytes(20e9, 1e-3) == 2.5e6
    assert needed_bytes(20e9, 4.03e-3, 0.6) == pytest.approx(16 * MIB, rel=1e-2)
    assert needed_bytes(10e9, 0.1, 0.5, flows=4) == math.ceil(125e6 / 2)


@pytest.mark.parametrize("left_out", range(len(LAB)))
def test_a_run_is_predicted_from_the_others_within_15_percent(left_out: int) -> None:
    shares = fit_shares([run for number, run in enumerate(LAB) if number != left_out])
    run = LAB[left_out]
    predicted = shares.predict_bit_s(run.receive_bytes, run.send_bytes, run.rtt_s, run.rate_bit_s)
    assert predicted == pytest.approx(run.bit_s, rel=0.15)


def test_the_lab_s_shares() -> None:
    shares = fit_shares(LAB)
    assert shares.receive == pytest.approx(0.63, abs=0.03)
    assert shares.send == pytest.approx(0.83, abs=0.03)
    assert shares.error < 0.1
    assert shares.runs == len(LAB) - 1  # one fills its link


@pytest.mark.parametrize(("receive", "send"), [(0.5, 0.9), (0.64, 0.83), (0.9, 0.5), (0.7, 0.7)])
def test_both_shares_are_found_again(receive: float, send: float) -> None:
    draw = random.Random(3)
    runs = []
    for _ in range(20):
        sizes = [draw.choice([256 * KIB, MIB, 4 * MIB, 16 * MIB]) for _ in range(2)]
        rtt_s = draw.choice([0.001, 0.02, 0.1])
        window = min(receive * sizes[0], send * sizes[1])
        runs.append(BufferRun(sizes[0], sizes[1], rtt_s, 8 * window / rtt_s * draw.gauss(1, 0.02)))
    shares = fit_shares(runs)
    assert shares.error < 0.08
    assert shares.receive == pytest.approx(receive, rel=0.05)
    assert shares.send == pytest.approx(send, rel=0.05)


def test_a_side_that_never_limits_has_no_share() -> None:
    runs = [BufferRun(size, 64 * MIB, 0.02, 8 * 0.6 * size / 0.02) for size in (MIB, 2 * MIB, 4 * MIB)]
    shares = fit_shares(runs)
    assert shares.receive == pytest.approx(0.6)
    assert shares.send is None
    assert shares.predict_bit_s(MIB, KIB, 0.02, 1e12) == pytest.approx(8 * 0.6 * MIB / 0.02)


def test_the_link_is_the_ceiling() -> None:
    shares = fit_shares(LAB)
    assert shares.predict_bit_s(64 * MIB, 64 * MIB, 0.02, 1e9) == 1e9


@pytest.mark.parametrize(
    ("runs", "said"),
    [
        ([BufferRun(MIB, MIB, 0.02, 0.99e9, 1e9)], "fills the link"),
        ([], "fills the link"),
        ([BufferRun(MIB, 0, 0.02, 1e8)], "no buffer"),
    ],
)
def test_what_says_nothing_of_buffers(runs: list[BufferRun], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        fit_shares(runs)
