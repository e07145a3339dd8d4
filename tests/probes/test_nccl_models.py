"""Bus bandwidth: nccl-tests' factors beside what it printed, and the ceilings of a node's links."""

from pathlib import Path

import pytest

from nodectl.errors import UsageError
from nodectl.facts.parsers.nccl.nccl_tests import NcclTests, NcclTestsSide, parse_nccl_tests
from nodectl.probes.nccl.models import NodeLinks, bandwidth, expected_busbw

SAMPLES = Path(__file__).parents[3] / "shared" / "samples"
NODE = NodeLinks(8, 450.0, (50.0,) * 8)
needs_samples = pytest.mark.skipif(
    not SAMPLES.is_dir(), reason="published outputs of nccl-tests are not beside this checkout"
)
# programs whose name is not the collective's
NAMES = {"alltoall": "all_to_all"}


@pytest.mark.parametrize(
    ("collective", "nodes", "busbw", "limit"),
    [
        ("all_reduce", [NODE], 450, "inside"),
        ("all_reduce", [NODE, NODE], 400, "network"),
        ("all_gather", [NODE, NodeLinks(8, 450.0, (50.0,) * 4)], 200, "network"),
        ("all_reduce", [NODE, NodeLinks(8, 20.0, (50.0,) * 8)], 20, "inside"),
        ("sendrecv", [NODE, NODE], 50, "network"),
        # 2 nodes of 8: each rank sends 8 of 15 parts across: 64 a node over 400 GB/s
        ("all_to_all", [NODE, NODE], 400 * 15 / 64, "network"),
        ("all_to_all", [NODE], 450, "inside"),
        # one rank a node, one NIC of 20 Gbit/s
        ("all_reduce", [NodeLinks(1, 0.0, (2.5,))] * 4, 2.5, "network"),
        ("all_to_all", [NodeLinks(1, 0.0, (2.5,))] * 4, 2.5, "network"),
        ("gather", [NODE, NODE], 450, "inside"),
        ("gather", [NodeLinks(8, 900.0, (50.0,) * 8)] * 2, 400 * 15 / 8, "network"),
    ],
)
def test_ceilings(collective: str, nodes: list[NodeLinks], busbw: float, limit: str) -> None:
    found = expected_busbw(collective, nodes, algorithm="RING")
    assert found.busbw_gb_s == pytest.approx(busbw)
    assert found.limit == limit


@pytest.mark.parametrize(
    ("algorithm", "nodes", "busbw", "limit"),
    [
        # 2 x 8: a node sends one sum for 15/8 of a ring's data, and the chains inside come first
        ("TREE", [NODE] * 2, 450 * (15 / 16) / (7 / 8), "inside"),
        ("TREE", [NodeLinks(8, 900.0, (50.0,) * 8)] * 2, 400 * 15 / 8, "network"),
        ("NVLS_TREE", [NODE] * 2, 400 * 15 / 8, "inside"),
        ("NVLS_TREE", [NodeLinks(8, 900.0, (50.0,) * 8)] * 4, 400 * (31 / 16) / (3 / 2), "network"),
        ("COLLNET_DIRECT", [NodeLinks(8, 900.0, (50.0,) * 8)] * 4, 400 * 31 / 16, "network"),
        ("RING", [NODE] * 2, 400, "network"),
        # 480 GB/s are measured on links of 450
        ("NVLS", [NODE], 450 * (7 / 4) * (8 / 9), "inside"),
        ("TREE", [NODE], 450, "inside"),
        ("RING", [NODE], 450, "inside"),
        (None, [NODE], 450, "inside"),
        # nobody knows which: what a tree allows
        (None, [NodeLinks(8, 900.0, (50.0,) * 8)] * 2, 400 * 15 / 8, "network"),
        (None, [NodeLinks(8, 10.0, (50.0,) * 8)] * 2, 10 * (15 / 16) / (7 / 8), "inside"),
    ],
)
def test_the_ceiling_of_an_all_reduce_is_its_algorithms(
    algorithm: str | None, nodes: list[NodeLinks], busbw: float, limit: str
) -> None:
    found = expected_busbw("all_reduce", nodes, algorithm=algorithm)
    assert found.busbw_gb_s == pytest.approx(busbw)
    assert found.limit == limit


@needs_samples
def test_two_nodes_exceed_a_rings_ceiling_and_not_a_trees() -> None:
    """2 x 8 H100 with 8 x 400 Gbit/s, as published."""
    run = parse_nccl_tests((SAMPLES / "nccl-tests-oci-2x8h100.txt").read_text(errors="replace"))
    most = max(row.out_of_place.busbw_gb_s or 0.0 for row in run.rows if row.out_of_place)
    ring, tree, nvls = (
        expected_busbw("all_reduce", [NODE] * 2, algorithm=name).busbw_gb_s for name in ("RING", None, "NVLS_TREE")
    )
    assert ring < most < tree < nvls


@pytest.mark.parametrize(
    ("collective", "nodes", "part", "said"),
    [
        ("all_reduced", [NODE], 1.0, "no collective"),
        ("all_reduce", [NodeLinks(1, 450.0)], 1.0, "two ranks"),
        ("all_reduce", [NODE, NodeLinks(8, 450.0)], 1.0, "without NICs"),
        ("all_reduce", [NODE], 0.0, "between 0 and 1"),
    ],
)
def test_what_makes_no_sense(collective: str, nodes: list[NodeLinks], part: float, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        expected_busbw(collective, nodes, part)


# (sample, collective, ranks); what the text does not say of itself follows from the ratio of its two bandwidths
PUBLISHED = (
    ("nccl-tests-allgather-old.txt", "all_gather", 8),
    ("nccl-tests-allreduce-2node-ndv4-a100-aks-ipoib.txt", "all_reduce", 16),
    ("nccl-tests-allreduce-2x8-rtxpro-cx8-roce-2.18.3.txt", "all_reduce", 16),
    ("nccl-tests-allreduce-6x4090-p2p-tinybox.txt", "all_reduce", 6),
    ("nccl-tests-allreduce-72xgb200-coreweave.txt", "all_reduce", 72),
    ("nccl-tests-allreduce-8x5090-2.18.2-truncated-no-summary.txt", "all_reduce", 8),
    ("nccl-tests-allreduce-failed-wrong-values-gh200.txt", "all_reduce", 2),
    ("nccl-tests-alltoall-old.txt", "alltoall", 8),
    ("nccl-tests-deepops-k8s-roce.txt", "all_reduce", 16),
    ("nccl-tests-dstack-gcp-a3high.txt", "all_gather", 16),
    ("nccl-tests-dstack-gcp-a3mega.txt", "all_gather", 16),
    ("nccl-tests-dstack-gcp-a4.txt", "all_reduce", 16),
    ("nccl-tests-gke-a3high-multinode.txt", "all_gather", 16),
    ("nccl-tests-gke-a3mega-2node.txt", "all_gather", 16),
    ("nccl-tests-mpirun-tag-output-awsbatch-full.txt", "all_reduce", 8),
    ("nccl-tests-oci-2x8h100.txt", "all_reduce", 16),
    ("nccl-tests-reduce-old.txt", "reduce", 8),
    ("nccl-tests-topo-aware-aws.txt", "all_reduce", 128),
)
# not nccl-tests' text: a fork's JSON
OTHERS = {"nccl-tests-json-fork-2025-pr318.txt"}


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


@needs_samples
def test_no_published_output_is_left_out() -> None:
    names = {path.name for path in SAMPLES.glob("nccl-tests-*.txt")}
    assert names == {each[0] for each in PUBLISHED} | OTHERS
