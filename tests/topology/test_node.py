"""A host from the inside: which NIC each GPU uses, which NICs train, and what limits it."""

from dataclasses import replace

import pytest

from nodectl.facts.parsers.nvidia.smi_topo import parse_nvidia_smi_p2p, parse_nvidia_smi_topo
from nodectl.facts.rdma import IbPort
from nodectl.model.facts import Unread
from nodectl.model.host import Host
from nodectl.model.topology import NodeTopology
from nodectl.topology.node import node_topology

HOST = Host("gpu01", "192.0.2.1")


def topo(*rows: str) -> str:
    """`nvidia-smi topo -m` of GPUs and NICs: rows of classes without names, NUMA in the last column of a GPU."""
    gpus = [row.split() for row in rows]
    nics = len(gpus[0]) - len(gpus) - 1
    names = [f"GPU{n}" for n in range(len(gpus))] + [f"NIC{n}" for n in range(nics)]
    lines = ["\t" + "\t".join(names) + "\tCPU Affinity\tNUMA Affinity"]
    lines += [f"GPU{n}\t" + "\t".join(row[:-1]) + f"\t0-7\t{row[-1]}" for n, row in enumerate(gpus)]
    for nic in range(nics):
        to_gpus = [row[len(gpus) + nic] for row in gpus]
        lines.append(f"NIC{nic}\t" + "\t".join(to_gpus + ["X" if nic == other else "SYS" for other in range(nics)]))
    return "\n".join([*lines, "", "NIC Legend:", "", *(f"  NIC{n}: mlx5_{n}" for n in range(nics)), ""])


def look(text: str, **facts: object) -> NodeTopology:
    found = node_topology(HOST, {"gpu_topology": parse_nvidia_smi_topo(text), **facts})
    assert isinstance(found, NodeTopology)
    return found


def checks(node: NodeTopology) -> list[tuple[str, str]]:
    return [(found.check, found.subject) for found in node.bottlenecks]


TWO_SOCKETS = topo(
    "X NV12 NV12 NV12 PXB PXB SYS SYS 0",
    "NV12 X NV12 NV12 PXB PXB SYS SYS 0",
    "NV12 NV12 X NV12 SYS SYS PXB PXB 1",
    "NV12 NV12 NV12 X SYS SYS PXB PXB 1",
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (TWO_SOCKETS, ["NIC0 PXB", "NIC1 PXB", "NIC2 PXB", "NIC3 PXB"]),
        # the GPU with one choice keeps it, whoever comes first
        (topo("X PIX PIX PIX 0", "PIX X PIX SYS 0"), ["NIC1 PIX", "NIC0 PIX"]),
        # closeness before evenness
        (topo("X PIX PIX SYS 0", "PIX X PIX SYS 0"), ["NIC0 PIX", "NIC0 PIX"]),
        # those without a near NIC share what is left evenly
        (
            topo("X SYS SYS PXB SYS 0", "SYS X SYS SYS SYS 1", "SYS SYS X SYS SYS 1"),
            ["NIC0 PXB", "NIC1 SYS", "NIC0 SYS"],
        ),
        (topo("X NV4 0", "NV4 X 0"), [None, None]),
    ],
)
def test_each_gpu_uses_its_closest_nic_and_shares_evenly(text: str, expected: list[str | None]) -> None:
    found = look(text).gpu_nic
    assert [f"{use.nic} {use.link}" if use.nic else None for use in found.values()] == expected
    assert all(use.why for use in found.values())


P2P_OFF = """\
 \tGPU0\tGPU1
 GPU0\tX\tCNS
 GPU1\tCNS\tX

Legend:

  X    = Self
  OK   = Status Ok
  CNS  = Chipset not supported
"""


PAIR = topo("X NV4 PIX SYS 0", "NV4 X SYS PIX 1")
PORTS = tuple(
    IbPort(f"mlx5_{n}", 1, "ACTIVE", "LinkUp", 200.0, link_layer="InfiniBand", pci_address=f"0000:a{n}:00.0")
    for n in range(2)
)


CARD = tuple(replace(port, pci_address=f"0000:a0:00.{n}") for n, port in enumerate(PORTS))


@pytest.mark.parametrize(
    ("text", "facts", "expected"),
    [
        (PAIR, {}, []),
        (PAIR, {"p2p": parse_nvidia_smi_p2p(P2P_OFF)}, [("topology_p2p", "all pairs")]),
        (
            topo("X NV4 PIX 0", "NV4 X SYS 1"),
            {},
            [("topology_gpu_without_near_nic", "GPU1"), ("topology_shared_nic", "NIC0: GPU0+GPU1")],
        ),
        (
            topo("X NV4 SYS SYS 0", "NV4 X SYS SYS 0"),
            {},
            [("topology_gpu_without_near_nic", "GPU0, GPU1")],
        ),
        (topo("X NV4 PXB PXB 0", "NV4 X PXB PXB 0"), {}, [("topology_shared_uplink", "GPU0+GPU1")]),
        # one NIC with a port for each of two GPUs
        (topo("X NV4 PIX PIX 0", "NV4 X PIX PIX 0"), {"ib_ports": CARD}, [("topology_shared_uplink", "GPU0+GPU1")]),
    ],
)
def test_bottlenecks(text: str, facts: dict[str, object], expected: list[tuple[str, str]]) -> None:
    node = look(text, **facts)
    assert checks(node) == expected
    # a note says how the host was built: it expects nothing, and there is nothing to do
    told = {(each.status.value, bool(each.expected), bool(each.remedy), each.host) for each in node.bottlenecks}
    assert told <= {("warning", True, True, "gpu01"), ("ok", False, False, "gpu01")}


def test_what_was_not_read_is_told_and_what_is_absent_is_not() -> None:
    node = look(
        PAIR, gpus=Unread("unknown", "cut"), p2p=Unread("unknown", "no entry"), ib_ports=Unread("absent", "none")
    )
    assert node.unknown == ("gpus: cut", "p2p: no entry")
    missing = Unread("absent", "nvidia-smi is not installed")
    assert node_topology(HOST, {"gpu_topology": missing}) is missing
