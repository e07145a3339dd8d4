"""The largest number of switches between two hosts, held against a search that tries every pair of hosts."""

import pytest

from nodectl.model.topology import FabricGraph
from nodectl.topology.fabric.judge import Distances, farthest, homes_of, parts_of
from tests.topology.fabrics import graph

LEAVES = [(f"n{n}", "mlx5_0", f"leaf{n // 2}") for n in range(4)]
TWO_RAILS = [(f"n{n}", f"mlx5_{rail}", f"leaf{rail}") for n in range(3) for rail in range(2)]


@pytest.mark.parametrize(
    ("given_graph", "hops", "path"),
    [
        (graph([("a", "x", "s"), ("b", "x", "s")]), 1, ("a", "s", "b")),
        (graph([("a", "x", "s")]), None, ()),
        (graph(LEAVES, [("leaf0", "spine"), ("leaf1", "spine")]), 3, ("n0", "leaf0", "spine", "leaf1", "n2")),
        (
            graph(LEAVES, [("leaf0", "s0"), ("s0", "core"), ("core", "s1"), ("s1", "leaf1"), ("leaf0", "leaf1")]),
            2,
            ("n0", "leaf0", "leaf1", "n2"),
        ),
        (graph(TWO_RAILS, [("leaf0", "spine"), ("leaf1", "spine")]), 1, ("n0", "leaf0", "n1")),
        (
            graph(
                [("a", "mlx5_0", "l0"), ("b", "mlx5_0", "l0"), ("a", "mlx5_1", "l1"), ("b", "mlx5_1", "l2")],
                [("l1", "s"), ("l2", "s")],
            ),
            3,
            ("a", "l1", "s", "l2", "b"),
        ),
    ],
)
def test_hops_and_their_witness(given_graph: FabricGraph, hops: int | None, path: tuple[str, ...]) -> None:
    found = farthest(Distances(given_graph), homes_of(given_graph))
    assert found == (hops, path)


@pytest.mark.parametrize(
    ("given_graph", "parts"),
    [
        (graph(LEAVES, [("leaf0", "spine"), ("leaf1", "spine")]), [("n0", "n1", "n2", "n3")]),
        (graph(LEAVES), [("n0", "n1"), ("n2", "n3")]),
        # rails without a way between them split no hosts
        (graph(TWO_RAILS), [("n0", "n1", "n2")]),
        # b reaches both, a and c do not reach each other
        (graph([("a", "x", "s"), ("b", "x", "s"), ("b", "y", "t"), ("c", "y", "t")]), [("a", "b"), ("b", "c")]),
    ],
)
def test_parts_without_a_way_between_them(given_graph: FabricGraph, parts: list[tuple[str, ...]]) -> None:
    assert parts_of(given_graph, homes_of(given_graph)) == parts
