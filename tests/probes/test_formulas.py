"""Bandwidths against the definitions in nccl-tests' PERFORMANCE.md, and against published outputs."""

import re
from pathlib import Path

import pytest

from nodectl.probes.formulas import COLLECTIVES, bandwidth

SAMPLES = Path(__file__).parents[3] / "shared" / "samples"
# size, count, type, redop, root, time_us, algbw, busbw
_ROW = re.compile(r"^\s*(\d+)\s+\d+\s+float\s+\w+\s+-?\d+\s+([\d.]+)\s+([\d.]+)\s+([\d.]+)\s", re.MULTILINE)


@pytest.mark.parametrize(
    ("collective", "bus"),
    [("all_reduce", 1.75), ("all_gather", 0.875), ("reduce_scatter", 0.875), ("all_to_all", 0.875), ("broadcast", 1.0)],
)
def test_eight_ranks_move_a_gigabyte_in_a_second(collective: str, bus: float) -> None:
    found = bandwidth(collective, 10**9, 8, 1.0)
    assert (found.algbw_gb_s, found.busbw_gb_s) == (1.0, bus)


def test_two_ranks_on_a_link_that_is_full() -> None:
    """all_reduce over two ranks sends each byte once each way: bus bandwidth is the link's."""
    assert bandwidth("all_reduce", 64 << 20, 2, (64 << 20) / 125e6).busbw_gb_s == pytest.approx(0.125)


def test_one_rank_uses_no_bus() -> None:
    for collective in set(COLLECTIVES) - {"broadcast"}:
        assert bandwidth(collective, 1, 1, 1.0).busbw_gb_s == 0


@pytest.mark.skipif(not SAMPLES.is_dir(), reason="published outputs of nccl-tests are not beside this checkout")
@pytest.mark.parametrize(
    ("name", "collective", "ranks"),
    [
        ("nccl-tests-allreduce-8x5090-2.18.2-truncated-no-summary.txt", "all_reduce", 8),
        ("nccl-tests-allreduce-6x4090-p2p-tinybox.txt", "all_reduce", 6),
        ("nccl-tests-allreduce-2node-ndv4-a100-aks-ipoib.txt", "all_reduce", 16),
    ],
)
def test_published_outputs_follow_the_same_formula(name: str, collective: str, ranks: int) -> None:
    rows = [tuple(map(float, row)) for row in _ROW.findall((SAMPLES / name).read_text(errors="replace"))]
    # printed with two decimals: only large values tell
    large = [row for row in rows if row[2] > 1]
    assert large
    for size_bytes, time_us, algbw, busbw in large:
        found = bandwidth(collective, int(size_bytes), ranks, time_us / 1e6)
        assert found.algbw_gb_s == pytest.approx(algbw, rel=0.01)
        assert found.busbw_gb_s == pytest.approx(busbw, rel=0.01)
