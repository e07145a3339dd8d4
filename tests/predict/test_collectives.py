"""Bus bandwidth: nccl-tests' factors beside what it printed, and the ceilings of a node's links."""

from pathlib import Path

import pytest

from nodectl.errors import UsageError
from nodectl.parsers.nccl.nccl_tests import parse_nccl_tests
from nodectl.predict.collectives import BUS_FACTORS, NodeLinks, algbw, expected_busbw

SAMPLES = Path(__file__).parents[3] / "shared" / "samples"
NODE = NodeLinks(8, 450.0, (50.0,) * 8)
# programs whose name is not the collective's
NAMES = {"alltoall": "all_to_all"}


@pytest.mark.parametrize("nodes", [1, 2, 4])
@pytest.mark.parametrize("collective", sorted(BUS_FACTORS))
def test_one_node_is_held_by_its_own_links_and_several_by_the_network(collective: str, nodes: int) -> None:
    found = expected_busbw(collective, [NODE] * nodes)
    # a root's NICs need not carry what comes from its own node
    rooted = collective in ("gather", "scatter")
    assert found.limit == ("inside" if nodes == 1 or rooted else "network")
    assert 0 < found.busbw_gb_s <= 1000
    assert expected_busbw(collective, [NODE] * nodes, part=0.5).busbw_gb_s == found.busbw_gb_s / 2


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
    found = expected_busbw(collective, nodes)
    assert found.busbw_gb_s == pytest.approx(busbw)
    assert found.limit == limit


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


@pytest.mark.skipif(not SAMPLES.is_dir(), reason="the samples are not beside this checkout")
def test_the_factors_are_those_of_published_outputs() -> None:
    seen: dict[str, int] = {}
    for path in sorted(SAMPLES.glob("nccl-tests-*.txt")):
        try:
            run = parse_nccl_tests(path.read_text(errors="replace"))
        except Exception:  # noqa: S112 - a sample of another form is the parser's business
            continue
        name = NAMES.get(run.collective or "", run.collective or "")
        if name not in BUS_FACTORS or len(run.ranks) < 2:
            continue
        for row in run.rows:
            place = row.out_of_place
            if place is None or not place.algbw_gb_s or place.algbw_gb_s < 1:
                continue
            assert algbw(name, place.busbw_gb_s or 0.0, len(run.ranks)) == pytest.approx(place.algbw_gb_s, rel=0.02)
            seen[name] = seen.get(name, 0) + 1
    assert seen.get("all_reduce", 0) > 20, seen


def test_one_rank_has_no_bus() -> None:
    assert algbw("all_gather", 1.0, 1) == float("inf")
