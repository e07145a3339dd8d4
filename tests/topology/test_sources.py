"""The fabric's graph from each source, and how its names meet the inventory's."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from nodectl.errors import InventoryError, NodectlError, ParseError, UsageError
from nodectl.model.host import Host
from nodectl.topology.fabric.judge import judge_fabric
from nodectl.topology.fabric.sources import graph_from, variables_graph
from tests.topology.fabrics import Fabric

HOSTS = (Host("gpu01.example.org", "192.0.2.1"), Host("gpu02.example.org", "192.0.2.2"))


def fabric_file(tmp_path: Path) -> Path:
    fabric = Fabric()
    fabric.add("MF0;leaf-a:MQM9700/U1")
    for name in ("gpu01 mlx5_0", "GPU02 HCA-1", "gpu03 mlx5_0", "Mellanox Technologies Aggregation Node"):
        fabric.add(name, "Ca")
        fabric.cable(name, "MF0;leaf-a:MQM9700/U1")
    fabric.add("MT4129 ConnectX7   Mellanox Technologies", "Ca")
    fabric.cable("MT4129 ConnectX7   Mellanox Technologies", "MF0;leaf-a:MQM9700/U1")
    path = tmp_path / "fabric.txt"
    path.write_text(fabric.text())
    return path


def test_adapters_of_one_name_belong_to_nobody(tmp_path: Path) -> None:
    fabric = Fabric()
    fabric.add("leaf1")
    for host in ("gpu01", "gpu02", "gpu03"):
        fabric.host(host, "HCA-1", "leaf1")
    path = tmp_path / "fabric.txt"
    path.write_text(fabric.text().replace("gpu03 HCA-1", "gpu02 HCA-1"))
    graph = graph_from(path, (), {})
    assert graph.hosts == ("gpu01",) and len(graph.nameless) == 2
    told = {(each.check, each.status.value) for each in judge_fabric(graph).findings}
    assert ("fabric_nameless", "unknown") in told


def test_an_inventory_names_its_hosts_and_adapters_by_guid(tmp_path: Path) -> None:
    path = fabric_file(tmp_path)
    nameless = graph_from(path, (), {}).nameless[0]
    hosts = (*HOSTS, Host("gpu09", "192.0.2.9"), Host("gpu10", "192.0.2.10"))
    graph = graph_from(path, hosts, {nameless.lstrip("0"): ("gpu09", "mlx5_4")})
    found = [(each.host, each.nic) for each in graph.attachments]
    assert found == [("gpu01.example.org", "mlx5_0"), ("gpu02.example.org", "HCA-1"), ("gpu09", "mlx5_4")]
    assert graph.missing == ("gpu10",) and graph.nameless == ()
    told = [(each.host, each.check, each.status.value) for each in judge_fabric(graph).findings]
    assert ("gpu10", "fabric_host", "unknown") in told


def lldp(*neighbors: tuple[str, str, bool], lone: bool = False) -> dict[str, Any]:
    """lldpctl -f json: (interface, chassis, forwards)."""
    interfaces = [
        {
            name: {
                "via": "LLDP",
                "chassis": {
                    chassis: {
                        "id": {"type": "mac", "value": "02:00:00:00:00:01"},
                        "capability": [{"type": "Bridge", "enabled": forwards}, {"type": "Router", "enabled": False}],
                    }
                },
                "port": {
                    "id": {"type": "ifname", "value": "swp1"},
                    "auto-negotiation": {"supported": True, "current": "100GBaseCR4 - 100GbE over 4 lanes"},
                },
            }
        }
        for name, chassis, forwards in neighbors
    ]
    return {"lldp": {"interface": interfaces[0] if lone else interfaces}}


LEAF_A = lldp(("swp1", "h1", False), ("swp31", "spine", True), ("swp32", "spine", True))
WHOLE = {
    "h1": lldp(("eth1", "leaf-a", True), lone=True),
    "h2": lldp(("eth1", "leaf-b", True)),
    "leaf-a": LEAF_A,
    "leaf-b": lldp(("swp1", "h2", False), ("swp31", "spine", True)),
    "spine": lldp(("swp1", "leaf-a", True), ("swp2", "leaf-a", True), ("swp3", "leaf-b", True)),
}


@pytest.mark.parametrize(
    ("documents", "hosts", "hops", "witness"),
    [
        # hosts only: the cables between leaves are not to be seen
        ({"h1": WHOLE["h1"], "h2": WHOLE["h2"]}, (), None, ()),
        ({"h1": WHOLE["h1"], "h2": lldp(("eth1", "leaf-a", True))}, (), 1, ("h1", "leaf-a", "h2")),
        (WHOLE, (), 3, ("h1", "leaf-a", "spine", "leaf-b", "h2")),
        (WHOLE, ("h1", "h2"), 3, ("h1", "leaf-a", "spine", "leaf-b", "h2")),
        # a host that was not asked is known from its leaf
        ({"leaf-a": LEAF_A, "h2": lldp(("eth1", "leaf-a", True))}, ("h1", "h2"), 1, ("h1", "leaf-a", "h2")),
    ],
)
def test_lldp_of_hosts_and_switches(
    tmp_path: Path, documents: Mapping[str, Any], hosts: Sequence[str], hops: int | None, witness: tuple[str, ...]
) -> None:
    for name, document in documents.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(document))
    known = [Host(name, name) for name in hosts]
    graph = graph_from(tmp_path, known, {})
    fabric = judge_fabric(graph)
    assert (fabric.max_hops, fabric.witness) == (hops, witness)
    assert {each.gbit_s for each in graph.attachments} == {100.0}
    assert fabric.findings[0].status.value == ("unknown" if hops is None else "ok")


@pytest.mark.parametrize(
    ("variables", "ports"),
    [
        ({"nodectl_switch": "leaf1"}, [("nic0", "leaf1", "")]),
        ({"nodectl_switch": ["leaf1", "leaf2"]}, [("nic0", "leaf1", ""), ("nic1", "leaf2", "")]),
        ({"nodectl_switch": {"mlx5_0": "l1"}, "nodectl_rail": {"mlx5_0": "r0"}}, [("mlx5_0", "l1", "r0")]),
        ({"nodectl_switch": ["l1", "l2"], "nodectl_rail": [0, 1]}, [("nic0", "l1", "0"), ("nic1", "l2", "1")]),
        ({"nodectl_switch": "l1", "nodectl_rail": 3}, [("nic0", "l1", "3")]),
    ],
)
def test_host_variables(variables: dict[str, object], ports: list[tuple[str, str, str]]) -> None:
    graph = variables_graph([Host("a", "a", variables=variables), Host("b", "b")])
    assert graph is not None and graph.missing == ("b",)
    assert [(each.nic, each.switch, each.rail) for each in graph.attachments] == ports


@pytest.mark.parametrize(
    "variables",
    [
        {"nodectl_switch": {"mlx5_0": ["l1"]}},
        {"nodectl_switch": True},
        {"nodectl_switch": ["l1", ""]},
        {"nodectl_switch": ["l1", "l2"], "nodectl_rail": [0]},
    ],
)
def test_variables_of_another_form_are_refused_naming_the_host(variables: dict[str, object]) -> None:
    with pytest.raises(InventoryError, match="host a: nodectl_"):
        variables_graph([Host("a", "a", variables=variables)])


@pytest.mark.parametrize(
    ("name", "text", "error"),
    [
        ("f.txt", "", ParseError),
        ("f.txt", "ibwarn: [1] mad_rpc_open_port: can't open UMAD port", ParseError),
        ("f.json", "{", ParseError),
        ("f.json", '{"h1": 3}', ParseError),
        ("f.json", '{"lldp": {"interface": {"eth0": 3}}}', ParseError),
        ("empty", None, UsageError),
    ],
)
def test_what_cannot_be_read_is_refused_naming_the_file(
    tmp_path: Path, name: str, text: str | None, error: type[NodectlError]
) -> None:
    path = tmp_path / name
    path.mkdir() if text is None else path.write_text(text)
    with pytest.raises(error) as caught:
        graph_from(path, (), {})
    assert name in caught.value.message and caught.value.remedy
