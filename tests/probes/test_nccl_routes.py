"""Which way NCCL should go, from a host's facts, and the ceiling that its links set."""

import pytest

from nodectl.facts.catalogue import commands_for, facts_named, read_facts
from nodectl.facts.gpus import Gpu, Gpus
from nodectl.facts.network import Nic
from nodectl.facts.parsers.nvidia.smi_nvlink import NvidiaSmiNvlink, NvLink, NvLinkGpu
from nodectl.facts.parsers.nvidia.smi_topo import parse_nvidia_smi_topo
from nodectl.facts.rdma import IbPort
from nodectl.model.facts import Unread
from nodectl.model.host import Host
from nodectl.model.recording import Recording
from nodectl.probes.endpoints import Endpoint
from nodectl.probes.nccl.fleet import WANTED, Group, Part, Route, routes_of
from nodectl.probes.nccl.models import ceiling
from nodectl.recordings.folder import open_recording
from nodectl.recordings.source import replay_source
from tests.topology.test_node import topo

HOST = Host("gpu01", "192.0.2.1")
ETH = Nic("eno1", "UP", 1500, None, ("192.0.2.1/24",), speed_mbit=10000)
ACTIVE = IbPort("mlx5_0", 1, state="ACTIVE", rate_gbit_s=400.0, link_layer="InfiniBand")
PORTS = (ACTIVE, IbPort("mlx5_1", 1, state="ACTIVE", rate_gbit_s=400.0, link_layer="InfiniBand"))
JOINED = topo("X NV18 PIX SYS 0", "NV18 X SYS PIX 1")
THREE = topo("X NV18 NV18 0", "NV18 X NV18 0", "NV18 NV18 X 0")
PAIRED = topo("X NV4 SYS 0", "NV4 X SYS 0", "SYS SYS X 1")
BOTH = Route(("m0",), {"m0": 400.0}, inside_gb_s=450.0)
FAR = topo("X PHB NODE SYS 0", "PHB X SYS NODE 1")


def gpus(count: int, model: str = "NVIDIA H100 80GB HBM3", width: int = 16) -> Gpus:
    devices = [
        Gpu(name=model, memory_total_mib=80000, pcie_gen_max=5, pcie_width_current=width, index=n) for n in range(count)
    ]
    return Gpus(count, tuple(devices))


def nvlink(count: int, active: int = 18) -> NvidiaSmiNvlink:
    links = tuple(NvLink(n, n < active, 26.562, None, None, None) for n in range(18))
    return NvidiaSmiNvlink(tuple(NvLinkGpu(n, None, None, links) for n in range(count)))


def route(text: str | None, **facts: object) -> Route:
    found = {"nics": {"eno1": ETH}, "ib_ports": PORTS, "gpus": gpus(2), **facts}
    if text is not None:
        found["gpu_topology"] = parse_nvidia_smi_topo(text)
    return routes_of([(HOST, found)])["gpu01"]


@pytest.mark.parametrize(
    ("text", "count", "link_class", "inside"),
    [
        (JOINED, 2, "nvlink-bridge", 18 * 25.0),
        (THREE, 3, "nvswitch", 18 * 25.0),
        (PAIRED, 3, "pcie", 16 * 3.938),
        (FAR, 2, "pcie", 16 * 3.938),
    ],
)
def test_the_links_between_gpus(text: str, count: int, link_class: str, inside: float) -> None:
    found = route(text, gpus=gpus(count), nvlink=nvlink(count))
    assert found.link_class == link_class
    assert found.inside_gb_s == pytest.approx(inside)
    assert found.nvlink == (link_class != "pcie")


@pytest.mark.parametrize(
    ("text", "model", "expected"),
    [
        (JOINED, "NVIDIA H100 80GB HBM3", True),
        (FAR, "NVIDIA H100 80GB HBM3", False),
        (JOINED, "NVIDIA GeForce RTX 4090", False),
        (THREE, "NVIDIA H100 80GB HBM3", False),
    ],
)
def test_gpu_direct_is_expected_of_gpus_beside_their_nics(text: str, model: str, expected: bool) -> None:
    assert route(text, gpus=gpus(3 if text is THREE else 2, model)).gpu_direct is expected


@pytest.mark.parametrize(
    ("ports", "rdma", "unknown"),
    [
        (Unread("absent", "no /sys/class/infiniband"), False, ""),
        (Unread("unknown", "permission denied"), False, "RDMA ports could not be read: permission denied"),
        ((IbPort("mlx5_0", 1, state="DOWN"),), False, ""),
        ((ACTIVE,), True, ""),
    ],
)
def test_no_rdma_is_not_the_same_as_could_not_look(ports: object, rdma: bool, unknown: str) -> None:
    found = route(None, ib_ports=ports)
    assert (found.rdma, found.unknown) == (rdma, unknown)


@pytest.mark.parametrize(
    ("name", "adapters", "link_class", "inside", "direct"),
    [
        ("h100-8", [0, 3, 4, 5, 6, 7, 8, 9], "nvswitch", 450.0, True),
        ("dgx-a100", [0, 1, 2, 3, 6, 7, 8, 9], "nvswitch", 300.0, True),
        ("rtx4090-3", [], "pcie", 31.504, False),
    ],
)
def test_recorded_hosts(name: str, adapters: list[int], link_class: str, inside: float, direct: bool) -> None:
    """What find_routes asks a host for, answered by the bundled recordings."""
    wanted = facts_named(*WANTED)
    source = replay_source(open_recording(name), None)
    for host, answer in source.recordings(lambda host: commands_for(host, wanted)):
        assert isinstance(answer, Recording)
        found = routes_of([(host, read_facts(answer, wanted))])[host.name]
        assert (found.unknown, found.link_class, found.gpu_direct) == ("", link_class, direct)
        assert found.inside_gb_s == pytest.approx(inside)
        assert found.adapters == tuple(f"mlx5_{number}" for number in adapters)


def part(name: str, ranks: int, speed_mbit: int | None = None) -> Part:
    endpoint = Endpoint(Host(name, name), name, "eth0", 1500, 29500, None, "2.7.0", 8, speed_mbit=speed_mbit)
    return Part(endpoint, ranks, tuple(range(ranks)), "eth0")


@pytest.mark.parametrize(
    ("parts", "backend", "known", "algorithm", "expected"),
    [
        ([part("a", 8), part("b", 8)], "nccl", BOTH, "RING", (400.0, "network")),
        ([part("a", 8), part("b", 8)], "nccl", BOTH, "TREE", None),
        ([part("a", 8), part("b", 8)], "nccl", Route(("m0", "m1"), {"m0": 400.0}, inside_gb_s=450.0), "RING", None),
        ([part("a", 8)], "nccl", Route(inside_gb_s=450.0), None, (450.0, "inside")),
        ([part("a", 8)], "nccl", Route(inside_gb_s=450.0), "NVLS", (450 * (7 / 4) * (8 / 9), "inside")),
        ([part("a", 1), part("b", 1)], "nccl", BOTH, "RING", (400.0, "network")),
        ([part("a", 8)], "nccl", Route(unknown="no answer"), "RING", None),
        ([part("a", 1, 10000), part("b", 1, 25000)], "gloo", Route(), None, (1.25, "network")),
        ([part("a", 1), part("b", 1, 25000)], "gloo", Route(), None, None),
    ],
)
def test_the_ceiling(
    parts: list[Part], backend: str, known: Route, algorithm: str | None, expected: tuple[float, str] | None
) -> None:
    routes = {each.endpoint.name: known for each in parts}
    found = ceiling("all_reduce", Group(tuple(parts)), backend, routes, algorithm)
    told = found and (round(found.busbw_gb_s, 6), found.limit)
    assert told == (expected and (round(expected[0], 6), expected[1]))
    assert ceiling("sendrecv", Group(tuple(parts)), backend, routes, algorithm) is None
