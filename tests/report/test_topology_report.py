"""Topology in the terminal, as JSON, and proposed environments as YAML."""

import json
from dataclasses import replace

import yaml

from nodectl.model.topology import GpuNic, NcclEnvironment, NodeGpu, NodeNic, NodeTopology
from nodectl.report.topology import (
    environment_yaml,
    fabric_document,
    node_document,
    nodes_text,
    variables_yaml,
)
from nodectl.topology.fabric.judge import judge_fabric
from tests.topology.fabrics import graph

NODE = NodeTopology(
    gpus=(NodeGpu("GPU0", "NVIDIA A100", "0", "0-7", 4, 16, 16), NodeGpu("GPU1", "NVIDIA A100", "1", "8-15", 4, 8, 16)),
    nics=(NodeNic("NIC0", "mlx5_0", rate_gbit_s=200.0, link_layer="InfiniBand"), NodeNic("NIC1", "mlx5_9", use="bond")),
    links={
        "GPU0": {"GPU1": "NV12", "NIC0": "PXB", "NIC1": "SYS"},
        "GPU1": {"GPU0": "NV12", "NIC0": "SYS", "NIC1": "SYS"},
    },
    gpu_nic={"GPU0": GpuNic("NIC0", "mlx5_0", "PXB", "why"), "GPU1": GpuNic(None, None, None, "none")},
)
TREE = graph([(f"n{n}", "x", f"l{n // 2}", 400.0) for n in range(4)], [("l0", "s", 800.0), ("l1", "s", 800.0)])
HOSTILE = "\x1b[31m<script>&'\"]]>\x00\u202e"


def test_hosts_that_are_alike_are_shown_once() -> None:
    odd = replace(NODE, nics=NODE.nics[:1], recorded="dgx")
    text = nodes_text({"n1": NODE, "n2": odd, "n3": NODE})
    assert (
        text.startswith("n[1,3]: 2 x NVIDIA A100, 2 RDMA NICs\n")
        and "n2: 2 x NVIDIA A100, 1 RDMA NICs (recorded: dgx)" in text
    )
    assert "GPU0 (x16 gen4) ══PXB══ NIC0 mlx5_0, 200 Gbit/s InfiniBand" in text
    assert "not for training: NIC1 mlx5_9 (bond)" in text
    assert "GPU1  NV12  X     SYS   SYS" in text


def test_the_keys_that_others_rely_on() -> None:
    node = node_document(NODE)
    assert node["gpus"] == ["GPU0", "GPU1"] and node["nics"] == ["NIC0", "NIC1"]
    assert node["gpu_nic"]["GPU0"]["nic"] == "NIC0" and {"link", "why"} <= set(node["gpu_nic"]["GPU0"])
    assert node["links"]["GPU0"]["NIC0"] == "PXB" and node["bottlenecks"] == []
    fabric = json.loads(json.dumps(fabric_document(judge_fabric(TREE))))
    assert fabric["max_hops"] == 3 and fabric["witness"] == ["n0", "l0", "s", "l1", "n2"]
    assert [each["name"] for each in fabric["switches"]] == ["l0", "l1", "s"]
    assert fabric["rank_order"] == ["n0", "n1", "n2", "n3"]


def test_environments_are_an_inventory_with_reasons() -> None:
    proposed = {
        "n1": NcclEnvironment(
            {"NCCL_IB_HCA": "=mlx5_0:1"}, {"NCCL_IB_HCA": "8 ports"}, {"NCCL_SOCKET_IFNAME": "one\ninterface"}
        ),
        HOSTILE: NcclEnvironment({}, {}, {"NCCL_IB_HCA": f"no RDMA: {HOSTILE}\nevil: true"}),
    }
    text = environment_yaml(proposed)
    hosts = yaml.safe_load(text)["all"]["hosts"]
    assert hosts == {"n1": {"nodectl_nccl_env": {"NCCL_IB_HCA": "=mlx5_0:1"}}, HOSTILE: {"nodectl_nccl_env": {}}}
    assert "# 8 ports" in text and "# NCCL_SOCKET_IFNAME is not set: one interface" in text
    assert yaml.safe_load("\n".join(variables_yaml(proposed["n1"]))) == {
        "nodectl_nccl_env": {"NCCL_IB_HCA": "=mlx5_0:1"}
    }
