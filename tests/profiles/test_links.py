"""What links are predicted to reach, and what that means for a machine that nobody named."""

from __future__ import annotations

from typing import Any

import pytest

from nodectl.model.host import Host
from nodectl.model.measurement import Measurement
from nodectl.model.status import Status
from nodectl.probes.base import ProbeResult
from nodectl.probes.endpoints import Endpoint
from nodectl.probes.floors import Reference, held_against
from nodectl.probes.nccl.fleet import Group, Part, Route
from nodectl.probes.nccl.models import ceiling
from nodectl.profiles.links import nvlink_gb_s, pcie_gb_s, predicted
from nodectl.profiles.schema import Hardware

AUTO = Reference("auto", Hardware(description="any", gpus=None))
RTX_3090, H100 = "NVIDIA GeForce RTX 3090", "NVIDIA H100 80GB HBM3"
SLOT = {"pcie_gen": 4, "pcie_width": 16}


def ring(gpu: str, links: int, ranks: int, algorithm: str = "RING") -> dict[str, Any]:
    """What the nccl probe writes beside an all_reduce of one node; without NVLinks over PCIe 4."""
    rate = nvlink_gb_s(gpu, links) if links else pcie_gb_s(*SLOT.values())
    host = Endpoint(Host("a", "a"), "a", "eth0", 1500, 1, None, None, ranks)
    group = Group((Part(host, ranks),))
    model = ceiling("all_reduce", group, "nccl", {"a": Route(inside_gb_s=rate)}, algorithm)
    assert model is not None
    found = {"collective": "all_reduce", "gpus": ranks, "link_class": "nvswitch" if links else "pcie"}
    return {
        **found,
        "verdict_size": "large",
        "size_bytes": 1 << 30,
        "model_busbw_gb_s": model.busbw_gb_s,
        "model_limit": model.limit,
    }


def pair(gpu: str, link: str, connection: str = "direct", **more: Any) -> dict[str, Any]:
    return {"device": gpu, "gpu": 0, "target": 1, "link": link, "connection": connection, **SLOT, **more}


@pytest.mark.parametrize(
    ("probe", "given", "measured"),
    [
        # published: Azure's floors, stas00/ml-engineering, NVIDIA/nccl issue 1639
        ("nccl", ring("NVIDIA A100-SXM4-80GB", 12, 8), 228),
        ("nccl", ring("NVIDIA A100 80GB PCIe", 12, 2), 193),
        ("nccl", ring("NVIDIA A100 80GB PCIe", 0, 4), 25),
        ("nccl", ring(H100, 18, 8, "NVLS"), 460),
        ("nccl", ring("NVIDIA H200", 18, 8), 365.6),
        ("nccl", ring("NVIDIA B200", 18, 8, "NVLS"), 838),
        ("nccl", ring("NVIDIA GB200", 18, 4), 679.6),
        ("p2p", pair("NVIDIA A100-SXM4-80GB", "NV12"), 235),
        ("p2p", pair("NVIDIA GB200", "NV18"), 743.9),
        ("h2d", {"device": H100, "memory": "near", "pcie_gen": 5, "pcie_width": 16}, 48),
        ("h2d", {"device": "NVIDIA L40S", "memory": "near", **SLOT}, 21),
    ],
)
def test_what_is_predicted_is_below_what_healthy_machines_measured_and_not_far(
    probe: str, given: dict[str, Any], measured: float
) -> None:
    floor = predicted(probe, given)
    assert floor is not None and floor.is_predicted
    assert 0.35 * measured < floor.value <= measured


@pytest.mark.parametrize(
    ("given", "least"),
    [
        (pair(RTX_3090, "NV4"), 28.1),
        (pair(RTX_3090, "PHB"), 9.5),
        # the other way is through the host
        (pair(RTX_3090, "NV4", "staged"), 9.5),
        # eight lanes were in use, whatever the card has
        (pair(RTX_3090, "PHB", pcie_width_now=8.0), 4.7),
        (pair("NVIDIA L40S", "PIX", can_access_peer=True), 18.9),
        (pair(RTX_3090, "SYS"), 3.0),
        ({"device": RTX_3090, "link": "PHB", "connection": "direct"}, None),
    ],
)
def test_a_pair_is_held_against_its_link(given: dict[str, Any], least: float | None) -> None:
    floor = predicted("p2p", given)
    assert (floor.value if floor else None) == least


def test_nothing_is_predicted_of_what_no_link_tells() -> None:
    assert predicted("h2d", {"device": "NVIDIA GB10", "memory": "near", **SLOT}) is None
    assert predicted("h2d", {"device": H100, "memory": "far", "pcie_gen": None, "pcie_width": 16}) is None
    whole = ring(H100, 18, 8)
    for without in ({"model_limit": "network"}, {"gpus": None}, {"link_class": None}, {"collective": "broadcast"}):
        assert predicted("nccl", {**whole, **without}) is None


@pytest.mark.parametrize(
    ("probe", "conditions", "value", "status"),
    [
        ("p2p", pair(RTX_3090, "NV4"), 6.0, Status.WARNING),
        ("p2p", pair(RTX_3090, "NV4"), 50.0, None),
        ("nccl", ring(H100, 0, 4), 2.0, Status.WARNING),
        ("nccl", ring("NVIDIA H20", 18, 8), 100.0, Status.WARNING),
        # what fills PCIe is too small for NVLink
        ("nccl", {**ring("NVIDIA H20", 18, 8), "size_bytes": 1 << 26}, 100.0, None),
        ("h2d", {"device": RTX_3090, "memory": "near", **SLOT}, 6.0, Status.WARNING),
        # a measured floor goes before, and fails
        ("h2d", {"device": H100, "memory": "near", "pcie_gen": 5, "pcie_width": 16}, 6.0, Status.FAILED),
    ],
)
def test_without_a_profile_links_are_held_against_what_they_predict(
    probe: str, conditions: dict[str, Any], value: float, status: Status | None
) -> None:
    row = Measurement(probe=probe, hosts=("a",), value=value, unit="GB/s", conditions=conditions)
    result = held_against(ProbeResult((row,)), {"a": AUTO})
    assert [finding.status for finding in result.findings] == ([status] if status else [])
    assert all(("predicted" in finding.expected) is (status is Status.WARNING) for finding in result.findings)
    unknown = held_against(ProbeResult((row,)), {"a": Reference("unknown", AUTO.hardware)})
    assert not unknown.findings
