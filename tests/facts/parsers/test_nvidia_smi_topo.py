"""The matrices of nvidia-smi topo: tabs, spaces, colours, old and new columns, cut rows."""

from __future__ import annotations

import pytest

from nodectl.errors import ParseError
from nodectl.facts.parsers.nvidia.smi_topo import parse_nvidia_smi_p2p, parse_nvidia_smi_topo
from tests.facts.parsers.tool_outputs import recorded_text

TABS = recorded_text("nvidia-smi-topo-tabs.txt")
LINKS = {
    "GPU0": {"GPU1": "NV12", "NIC0": "PXB", "NIC1": "SYS"},
    "GPU1": {"GPU0": "NV12", "NIC0": "PIX", "NIC1": "NODE"},
    "NIC0": {"GPU0": "PXB", "GPU1": "PIX", "NIC1": "PHB"},
    "NIC1": {"GPU0": "SYS", "GPU1": "NODE", "NIC0": "PHB"},
}
SPACES = TABS.expandtabs(8)
GLUED = """\
      GPU0GPU1NIC0  CPU AffinityNUMA Affinity
GPU0   X  NV12NODE  0-23  0
GPU1  NV12 X  NODE  0-23  0
NIC0  NODENODE X
"""


@pytest.mark.parametrize(
    "text",
    [
        TABS,
        SPACES,
        TABS.replace("\n", "\r\n"),
        "".join(f"[1,3]<stdout>:{line}\n" for line in TABS.splitlines()),
        "".join(f"node1: {line}\n" for line in SPACES.splitlines()),
        "$ nvidia-smi topo -m\n" + TABS.replace("GPU1\tNV12", "2026-01-01 INFO GPU1 is fine\nGPU1\tNV12"),
        TABS + TABS,
    ],
    ids=["tabs", "spaces", "crlf", "mpi", "pdsh", "noise", "twice"],
)
def test_every_cell(text: str) -> None:
    found = parse_nvidia_smi_topo(text)
    assert (found.gpus, found.nics) == (("GPU0", "GPU1"), ("NIC0", "NIC1"))
    assert found.links == LINKS
    assert found.nic_devices == {"NIC0": "mlx5_1", "NIC1": "mlx5_bond_0"}
    assert found.cpu_affinity == {"GPU0": "0-31,64-95", "GPU1": "32-63"}
    assert found.numa_affinity == {"GPU0": "0", "GPU1": "1-2"}
    assert found.gpu_numa_id == {"GPU0": None, "GPU1": "7"}
    assert found.unavailable == {"gpu_numa_id.GPU0": "N/A"}


def test_cells_that_grew_together() -> None:
    found = parse_nvidia_smi_topo(GLUED)
    assert found.links == {
        "GPU0": {"GPU1": "NV12", "NIC0": "NODE"},
        "GPU1": {"GPU0": "NV12", "NIC0": "NODE"},
        "NIC0": {"GPU0": "NODE", "GPU1": "NODE"},
    }
    assert found.cpu_affinity == {"GPU0": "0-23", "GPU1": "0-23"}


def test_columns_of_old_drivers_are_the_devices() -> None:
    text = "\tGPU0\tmlx5_0\tmlx5_bond_1\tCPU Affinity\nGPU0\t X \tPIX\tSOC\t0-7\n"
    found = parse_nvidia_smi_topo(text)
    assert (found.nics, found.links) == (("mlx5_0", "mlx5_bond_1"), {"GPU0": {"mlx5_0": "PIX", "mlx5_bond_1": "SOC"}})
    assert found.nic_devices == {"mlx5_0": "mlx5_0", "mlx5_bond_1": "mlx5_bond_1"}
    assert (found.numa_affinity, found.cpu_affinity) == ({}, {"GPU0": "0-7"})


def test_one_gpu_and_a_matrix_that_ends_early() -> None:
    assert parse_nvidia_smi_topo("\tGPU0\tCPU Affinity\nGPU0\t X \t0-7\n").links == {"GPU0": {}}
    cut = TABS[: TABS.index("NIC0\tPXB")]
    assert parse_nvidia_smi_topo(cut).links == {name: LINKS[name] for name in ("GPU0", "GPU1")}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "empty"),
        ("hello\n", "line 1: 'hello'"),
        ("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n", "couldn't communicate"),
        (TABS[: TABS.index("PIX\tNODE")], "line 3.*3 cells under 4"),
        (TABS[: TABS.index("\t32-63")], "line 3.*cut before its CPU affinity"),
        (TABS.replace("NV12\t X \tPIX", "NV12\t X \tPIK"), "line 3.*'PIK' under NIC0"),
        (TABS.replace("GPU0\t X \tNV12", "GPU0\tNV12\t X "), "line 2.*diagonal"),
        (TABS.replace("NIC1\tSYS", "NIC9\tSYS"), "line 5.*no column is named NIC9"),
    ],
)
def test_what_cannot_be_read_is_refused(text: str, told: str) -> None:
    with pytest.raises(ParseError, match=told):
        parse_nvidia_smi_topo(text)


P2P = recorded_text("nvidia-smi-topo-p2p.txt")
STATUS = {
    "GPU0": {"GPU1": "OK", "GPU2": "CNS"},
    "GPU1": {"GPU0": "NS", "GPU2": "GNS"},
    "GPU2": {"GPU0": "TNS", "GPU1": "DR"},
}


@pytest.mark.parametrize("text", [P2P, P2P.expandtabs(8), P2P.replace("\n", "\r\n")], ids=["tabs", "spaces", "crlf"])
def test_p2p(text: str) -> None:
    found = parse_nvidia_smi_p2p(text)
    assert (found.gpus, found.status, found.unavailable) == (("GPU0", "GPU1", "GPU2"), STATUS, {})


def test_p2p_of_a_pair_that_is_refused() -> None:
    found = parse_nvidia_smi_p2p(P2P.replace("CNS", "N/A"))
    assert (found.status["GPU0"], found.unavailable) == ({"GPU1": "OK"}, {"status.GPU0-GPU2": "N/A"})


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "empty"),
        ("Failed to initialize NVML: Driver/library version mismatch\n", "version mismatch"),
        (P2P.replace("CNS", "NV12"), "line 3.*'NV12' under GPU2"),
        (P2P[: P2P.index("\tGNS")], "line 4"),
    ],
)
def test_p2p_that_is_refused(text: str, told: str) -> None:
    with pytest.raises(ParseError, match=told):
        parse_nvidia_smi_p2p(text)


def test_an_affinity_that_is_not_given_is_none() -> None:
    text = "\tGPU0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\nGPU0\t X \t\t\t\tN/A\n"
    found = parse_nvidia_smi_topo(text)
    assert parse_nvidia_smi_topo(text.expandtabs()) == found
    assert (found.cpu_affinity, found.numa_affinity) == ({"GPU0": None}, {"GPU0": None})
    assert found.unavailable == {"gpu_numa_id.GPU0": "N/A"}
