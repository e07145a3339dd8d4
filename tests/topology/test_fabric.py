"""The verdict on a fabric: figures of fat trees, and a table of what is wrong with the others."""

import pytest

from nodectl.model.status import Status
from nodectl.model.topology import Fabric, FabricGraph
from nodectl.topology.fabric.judge import Distances, homes_of, judge_fabric, rank_order
from tests.topology.fabrics import graph

SPINE = [("l0", "s", 400.0), ("l1", "s", 400.0), ("l2", "s", 400.0)]
# three hosts a leaf would be more than the uplink carries: one each, at the uplink's rate
HOSTS = [(f"n{n}", "mlx5_0", f"l{n}", 400.0) for n in range(3)]
RAILS = [(f"n{n}", f"mlx5_{rail}", f"r{rail}", 400.0) for n in range(4) for rail in range(2)]
ONE_LEAF = [(f"n{n}", f"mlx5_{rail}", "l0", 400.0) for n in range(3) for rail in range(2)]


def judged(given_graph: FabricGraph, **limits: int) -> Fabric:
    return judge_fabric(given_graph, max_hops=limits.get("max_hops", 3))


def told(fabric: Fabric) -> list[tuple[str, str, str, str]]:
    """(status, host, check, subject) of what is not fine."""
    return [
        (found.status.value, found.host, found.check, found.subject)
        for found in fabric.findings
        if found.status not in (Status.OK, Status.SKIPPED)
    ]


@pytest.mark.parametrize(
    ("given_graph", "limits", "expected"),
    [
        pytest.param(
            graph(HOSTS, SPINE), {"max_hops": 2}, [("failed", "fabric", "fabric_hops", "n0 - n1")], id="too many hops"
        ),
        pytest.param(
            graph([*HOSTS, ("x", "mlx5_0", "far", 400.0)], SPINE),
            {},
            [("failed", "fabric", "fabric_partitioned", "")],
            id="two parts",
        ),
        pytest.param(
            graph([*HOSTS[:2], ("n2", "mlx5_0", "l2", 200.0)], SPINE),
            {},
            [("warning", "n2", "fabric_port_rate", "mlx5_0")],
            id="a slow port",
        ),
        pytest.param(
            graph(HOSTS, [*SPINE[:2], ("l2", "s", 100.0)]),
            {},
            [("warning", "fabric", "fabric_trunk_rate", "l2 - s")],
            id="a slow cable",
        ),
        pytest.param(graph(RAILS[:-1]), {}, [("warning", "n3", "fabric_node", "")], id="a host with a port less"),
        pytest.param(
            graph([*RAILS[:-2], ("n3", "mlx5_0", "r1", 400.0), ("n3", "mlx5_1", "r0", 400.0)]),
            {},
            [("warning", "n3", "fabric_rail", "mlx5_0"), ("warning", "n3", "fabric_rail", "mlx5_1")],
            id="two cables crossed",
        ),
        pytest.param(
            graph([*RAILS[:-1], ("n3", "mlx5_1", "r0", 400.0)]),
            {},
            [
                ("warning", "n3", "fabric_node", ""),
                ("warning", "n3", "fabric_rail", "mlx5_1"),
            ],
            id="two NICs of one host on one switch",
        ),
        pytest.param(graph(ONE_LEAF), {}, [], id="all hosts with two NICs on one switch: built so"),
        pytest.param(
            graph(HOSTS, trunks_known=False), {}, [("unknown", "fabric", "fabric_hops", "")], id="no cables between"
        ),
    ],
)
def test_what_is_wrong_is_named(
    given_graph: FabricGraph, limits: dict[str, int], expected: list[tuple[str, str, str, str]]
) -> None:
    assert told(judged(given_graph, **limits)) == expected


def test_ranks_keep_hosts_of_a_leaf_and_of_a_pod_together() -> None:
    # pod 0 holds l0 and l2, pod 1 holds l1 and l3; hosts are numbered across them
    homes = [(f"n{n}", "x", f"l{n % 4}") for n in range(12)]
    trunks = [("l0", "p0"), ("l2", "p0"), ("l1", "p1"), ("l3", "p1"), ("p0", "core"), ("p1", "core")]
    given_graph = graph(homes, trunks)
    order = rank_order(Distances(given_graph), homes_of(given_graph))
    assert order == ("n0", "n4", "n8", "n2", "n6", "n10", "n1", "n5", "n9", "n3", "n7", "n11")
    backwards = graph(homes[::-1], trunks[::-1])
    assert rank_order(Distances(backwards), homes_of(backwards)) == order


def test_unknown_hosts_come_last_as_the_inventory_has_them() -> None:
    fabric = judge_fabric(graph(HOSTS, SPINE), ["zz", "n2", "aa", "n0", "n1"])
    assert fabric.rank_order == ("n0", "n1", "n2", "zz", "aa")
