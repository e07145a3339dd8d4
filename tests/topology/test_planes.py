"""NICs of two ports, each on a plane of its own: one NIC beside its GPU, and a fault where a plane is lacking.

The recording is made up: four GPUs, four ConnectX-8 of two functions, interfaces whose names tell nothing of the NIC.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from nodectl.facts.parsers.nvidia.smi_topo import parse_nvidia_smi_topo
from nodectl.facts.rdma import IbPort
from nodectl.jobs.nics import adapters_of
from nodectl.model.host import Host
from nodectl.model.topology import NodeTopology
from nodectl.topology.look import Looked
from nodectl.topology.node import node_topology
from tests.conftest import Cli
from tests.topology.fabrics import graph
from tests.topology.test_fabric import judged, told
from tests.topology.test_node import topo
from tests.topology.test_sources import lldp

NICS = 4
PORTS = [(nic, plane) for nic in range(NICS) for plane in range(2)]
ROWS = [[*("X" if gpu == other else "NV18" for other in range(NICS))] for gpu in range(NICS)]
TOPO = topo(
    *(" ".join([*row, *("PXB" if nic == gpu else "NODE" for nic, _ in PORTS), "0"]) for gpu, row in enumerate(ROWS))
)


def sysfs(host: int) -> str:
    lines = []
    for number, (nic, plane) in enumerate(PORTS):
        name = f"mlx5_{number}"
        lines += [f"{name}/node_guid:b83f:d203:000{host}:00{number:02}", f"{name}/hca_type:MT4131"]
        lines += [f"{name}/ports/1/{file}" for file in ("state:4: ACTIVE", "phys_state:5: LinkUp")]
        lines += [f"{name}/ports/1/{file}" for file in ("rate:400 Gb/sec (4X NDR)", "link_layer:Ethernet")]
        lines += [f"{name}/pci:../../../0000:{nic}3:00.{plane}", f"{name}/net/port{number}:0"]
    return "\n".join(lines) + "\n"


def record(folder: Path, switches: dict[tuple[int, int, int], str | None]) -> str:
    """Four hosts, each port on the leaf of its rail and plane, or on another, or none."""
    for host in range(4):
        seen = {number: switches.get((host, *port), f"rail{port[0]}-{port[1]}") for number, port in enumerate(PORTS)}
        neighbors = [(f"port{number}", switch, True) for number, switch in seen.items() if switch]
        outputs = {"nvidia-smi-topo": TOPO, "ib-sysfs": sysfs(host), "lldpctl": json.dumps(lldp(*neighbors))}
        there = folder / f"gpu{host}"
        there.mkdir(parents=True)
        for key, text in outputs.items():
            (there / f"{key}.out").write_text(text)
        entry = {"exit_status": 0, "duration_s": 0.1, "time": "2026-10-12T08:00:03Z"}
        (there / "index.json").write_text(json.dumps([{"key": key, "argv": [key], **entry} for key in outputs]))
    return str(folder)


@pytest.mark.parametrize(
    ("switches", "expected"),
    [
        ({}, []),
        ({(2, 1, 1): "rail1-0"}, [("gpu2", "fabric_plane", "port2 on rail1-0; port3 on rail1-0")]),
        ({(2, 1, 1): None}, [("gpu2", "fabric_plane", "port2 on rail1-0; port3 on none")]),
    ],
)
def test_a_plane_that_lacks_is_named_and_two_planes_are_none(
    nodectl: Cli, tmp_path: Path, switches: dict[Any, str | None], expected: list[tuple[str, str, str]]
) -> None:
    folder = record(tmp_path / "made", switches)
    found = json.loads(nodectl("topology", "--fabric", "--replay", folder, "--output", "json", check=False).stdout)
    of_fabric = [each for each in found["findings"] if each["status"] == "warning"]
    assert [(each["host"], each["check"], each["actual"]) for each in of_fabric] == expected
    assert found["hosts"]["gpu0"]["gpu_nic"]["GPU1"]["devices"] == ["mlx5_2", "mlx5_3"]


def test_a_gpu_is_bound_to_both_ports_of_its_nic() -> None:
    ports = tuple(
        IbPort(f"mlx5_{number}", 1, "ACTIVE", rate_gbit_s=400.0, pci_address=f"0000:{nic}3:00.{plane}")
        for number, (nic, plane) in enumerate(PORTS)
    )
    host = Host("gpu0", "192.0.2.1")
    facts = {"gpu_topology": parse_nvidia_smi_topo(TOPO), "ib_ports": ports}
    node = node_topology(host, facts)
    assert isinstance(node, NodeTopology) and node.bottlenecks == ()
    bound = adapters_of(host, Looked({"gpu0": node}, {"gpu0": facts})).by_gpu
    assert bound == tuple(f"=mlx5_{2 * nic}:1,mlx5_{2 * nic + 1}:1" for nic in range(NICS))


def test_two_gpus_share_a_nic_of_two_ports_without_loss_and_three_do_not() -> None:
    ports = tuple(IbPort(f"mlx5_{n}", 1, "ACTIVE", pci_address=f"0000:03:00.{n}") for n in range(2))
    for gpus, expected in ((2, []), (3, ["topology_shared_nic"])):
        rows = [" ".join([*("X" if a == b else "NV18" for b in range(gpus)), "PIX PIX 0"]) for a in range(gpus)]
        facts = {"gpu_topology": parse_nvidia_smi_topo(topo(*rows)), "ib_ports": ports}
        node = node_topology(Host("gpu0", "192.0.2.1"), facts)
        assert isinstance(node, NodeTopology)
        assert [each.check for each in node.bottlenecks if each.check == "topology_shared_nic"] == expected


@pytest.mark.parametrize("leaf", ["r{nic}-p{plane}", "p{plane}", "one"])
def test_names_of_interfaces_tell_the_nic_and_leaves_may_be_shared(leaf: str) -> None:
    """By rail and plane, by plane alone, and all on one leaf: as it was built."""
    homes = [
        (f"n{host}", f"ens{nic}f{plane}np{plane}", leaf.format(nic=nic, plane=plane), 400.0)
        for host in range(3)
        for nic, plane in PORTS
    ]
    assert told(judged(graph(homes))) == []
    less = [home for home in homes if home[:2] != ("n1", "ens2f1np1")]
    (found,) = [each for each in told(judged(graph(less, trunks_known=False))) if each[0] == "warning"]
    assert found == ("warning", "n1", *(("fabric_node", "") if leaf == "one" else ("fabric_plane", "ens2")))
