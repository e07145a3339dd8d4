"""Bus bandwidth: nccl-tests' factors and what it printed."""

from pathlib import Path

import pytest

from nodectl.facts.parsers.nccl.nccl_tests import NcclTests, NcclTestsSide, parse_nccl_tests
from nodectl.probes.nccl.models import bandwidth

SAMPLES = Path(__file__).parents[3] / "shared" / "samples"
needs_samples = pytest.mark.skipif(
    not SAMPLES.is_dir(), reason="published outputs of nccl-tests are not beside this checkout"
)


# (sample, collective, ranks); what the text does not say of itself follows from the ratio of its two bandwidths
PUBLISHED = (
    ("nccl-tests-allgather-old.txt", "all_gather", 8),
    ("nccl-tests-allreduce-2node-ndv4-a100-aks-ipoib.txt", "all_reduce", 16),
    ("nccl-tests-allreduce-72xgb200-coreweave.txt", "all_reduce", 72),
    ("nccl-tests-allreduce-8x5090-2.18.2-truncated-no-summary.txt", "all_reduce", 8),
    ("nccl-tests-allreduce-failed-wrong-values-gh200.txt", "all_reduce", 2),
    ("nccl-tests-alltoall-old.txt", "alltoall", 8),
    ("nccl-tests-reduce-old.txt", "reduce", 8),
    ("nccl-tests-topo-aware-aws.txt", "all_reduce", 128),
)


@pytest.mark.parametrize(
    ("collective", "bus"),
    [
        ("all_reduce", 1.75),
        ("all_gather", 0.875),
        ("reduce_scatter", 0.875),
        ("all_to_all", 0.875),
        ("broadcast", 1.0),
        ("sendrecv", 1.0),
    ],
)
def test_eight_ranks_move_a_gigabyte_in_a_second(collective: str, bus: float) -> None:
    found = bandwidth(collective, 10**9, 8, 1.0)
    assert (found.algbw_gb_s, found.busbw_gb_s) == (1.0, bus)


def run_of(name: str) -> NcclTests:
    return parse_nccl_tests((SAMPLES / name).read_text(errors="replace"))


def sides(run: NcclTests) -> list[tuple[int, NcclTestsSide]]:
    """(size, side): out of place and in place."""
    return [
        (row.size_bytes, side)
        for row in run.rows
        for side in (row.out_of_place, row.in_place)
        if side is not None and side.time_us and side.algbw_gb_s is not None and side.busbw_gb_s is not None
    ]


def half_a_digit(time_us: float) -> float:
    """How far a time may be from what was printed."""
    if time_us >= 1e6 and time_us % 1e4 == 0:
        return 0.05 * time_us  # 1.2e+06
    return 0.5 * 10.0 ** -len(str(time_us).rstrip("0").partition(".")[2])


@needs_samples
@pytest.mark.parametrize(("name", "collective", "ranks"), PUBLISHED, ids=[each[0] for each in PUBLISHED])
def test_every_published_row_follows_the_same_formula(name: str, collective: str, ranks: int) -> None:
    run = run_of(name)
    rows = sides(run)
    assert len(rows) >= len(run.rows)
    for size_bytes, side in rows:
        time_us, off = side.time_us or 0.0, half_a_digit(side.time_us or 0.0)
        slow = bandwidth(collective, size_bytes, ranks, (time_us + off) / 1e6)
        fast = bandwidth(collective, size_bytes, ranks, (time_us - off) / 1e6)
        # two decimals are printed
        assert slow.algbw_gb_s - 0.00501 <= (side.algbw_gb_s or 0.0) <= fast.algbw_gb_s + 0.00501
        assert slow.busbw_gb_s - 0.00501 <= (side.busbw_gb_s or 0.0) <= fast.busbw_gb_s + 0.00501
