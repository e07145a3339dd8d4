"""What is expected of a measurement: the floor whose conditions it meets, and nothing where none does."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from nodectl.model.host import Host
from nodectl.model.measurement import Measurement
from nodectl.probes.base import ProbeResult
from nodectl.probes.floors import Reference, held_against
from nodectl.probes.series import run_probes
from nodectl.profiles.schema import Floor, Hardware
from tests.probes.declared import wanted_of
from tests.probes.scripted import Answer, play

GIB = 1 << 30


def floor(probe: str, value: float, unit: str, conditions: Mapping[str, Any] | None = None, **more: Any) -> Floor:
    return Floor(probe=probe, value=value, unit=unit, conditions=dict(conditions or {}), source="a table", **more)


def hardware(*floors: Floor) -> Hardware:
    return Hardware(description="a test's", gpus=8, floors=floors)


def held(
    floors: Sequence[Floor], probe: str, value: float, unit: str, hosts: tuple[str, ...] = ("n1",), **conditions: Any
) -> tuple[float | None, list[str]]:
    """(expected, statuses) of one measurement."""
    references = {name: Reference("own", hardware(*floors)) for name in hosts}
    result = held_against(ProbeResult((Measurement(probe, hosts, value, unit, conditions=conditions),)), references)
    return result.measurements[0].expected, [str(each.status) for each in result.findings]


ALL_REDUCE = {"collective": "all_reduce", "gpus": 8, "size": "8G"}
NVSWITCH = floor("nccl", 228, "GB/s", ALL_REDUCE, link_class="nvswitch")
PCIE = floor("nccl", 25, "GB/s", {"collective": "all_reduce", "size": "8G"}, link_class="pcie")
LARGE = {"collective": "all_reduce", "gpus": 8, "size_bytes": 8 * GIB}
GEMM = floor("gemm", 800, "TFLOPS", {"precision": "bf16"}, tolerance_percent=5)
CEILING = floor("latency", 20, "us", {}, tolerance_percent=10)
NVLS = floor("nccl", 460, "GB/s", {"collective": "all_reduce", "nvls": True})
WITHOUT_NVLS = floor("nccl", 365, "GB/s", {"collective": "all_reduce", "nvls": False})


@pytest.mark.parametrize(
    ("floors", "measured", "conditions", "expected", "statuses"),
    [
        pytest.param([GEMM], ("gemm", 812.0, "TFLOPS"), {"precision": "bf16"}, 800, [], id="reached"),
        pytest.param([GEMM], ("gemm", 759.9, "TFLOPS"), {"precision": "bf16"}, 800, ["failed"], id="below it"),
        pytest.param([GEMM], ("gemm", 9.0, "GFLOPS"), {"precision": "bf16"}, None, [], id="another unit"),
        pytest.param([GEMM], ("gemm", 9.0, "TFLOPS"), {"precision": "fp8"}, None, [], id="another condition"),
        pytest.param(
            [GEMM], ("gemm", 0.2, "TFLOPS"), {"precision": "bf16", "device": "cpu"}, None, [], id="processors"
        ),
        pytest.param([NVSWITCH, PCIE], ("nccl", 26.0, "GB/s"), {**LARGE, "link_class": "pcie"}, 25, [], id="PCIe"),
        pytest.param(
            [NVSWITCH, PCIE],
            ("nccl", 26.0, "GB/s"),
            {**LARGE, "link_class": "nvswitch"},
            228,
            ["failed"],
            id="NVSwitch",
        ),
        pytest.param(
            [PCIE],
            ("nccl", 2.0, "GB/s"),
            {**LARGE, "size_bytes": 8 * GIB - 1, "link_class": "pcie"},
            None,
            [],
            id="smaller",
        ),
        pytest.param(
            [PCIE],
            ("nccl", 2.0, "GB/s"),
            {**LARGE, "size_bytes": 16 * GIB, "link_class": "pcie"},
            25,
            ["failed"],
            id="larger",
        ),
        pytest.param(
            [PCIE],
            ("nccl", 2.0, "GB/s"),
            {**LARGE, "link_class": "pcie", "complete": False},
            None,
            [],
            id="a run cut short",
        ),
        pytest.param(
            [NVLS], ("nccl", 400.0, "GB/s"), {**LARGE, "algorithm": "RING"}, 460, ["failed"], id="without NVLS"
        ),
        pytest.param([NVLS], ("nccl", 470.0, "GB/s"), {**LARGE, "nvls": False}, 460, [], id="quick without NVLS"),
        pytest.param(
            [NVLS, WITHOUT_NVLS], ("nccl", 400.0, "GB/s"), {**LARGE, "nvls": False}, 460, ["failed"], id="expected"
        ),
        pytest.param([CEILING], ("latency", 21.9, "us"), {}, 20, [], id="quick enough"),
        pytest.param([CEILING], ("latency", 22.1, "us"), {}, 20, ["failed"], id="too slow"),
    ],
)
def test_what_is_expected(
    floors: list[Floor],
    measured: tuple[str, float, str],
    conditions: dict[str, Any],
    expected: float | None,
    statuses: list[str],
) -> None:
    assert held(floors, *measured, **conditions) == (expected, statuses)


def test_of_two_hosts_the_one_of_which_less_is_expected_counts() -> None:
    fast, slow = (hardware(floor("rdma", value, "Gb/s")) for value in (390, 95))
    pair = Measurement("rdma", ("n1", "n2"), 90.0, "Gb/s", "n1 -> n2")
    result = held_against(ProbeResult((pair,)), {"n1": Reference("fast", fast), "n2": Reference("slow", slow)})
    (finding,) = result.findings
    assert (result.measurements[0].expected, finding.hosts, finding.kind) == (95, ("n1", "n2"), "")
    assert finding.subject == "n1 -> n2" and finding.expected == "at least 95 Gb/s (slow)"
    assert finding.actual == "90.0 Gb/s, 95 % of what slow reaches" and finding.evidence == "a table"


def series(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, object], topology: str = ""
) -> tuple[ProbeResult, Any]:
    """A probe of one host, as `nodectl probe` runs it; the host's answer to `nvidia-smi topo -m`."""

    def run(*_: object) -> ProbeResult:
        return ProbeResult((Measurement("gemm", ("gpu1",), 500.0, "TFLOPS", conditions={"precision": "bf16"}),))

    fleet: Any = play(monkeypatch, lambda *_: Answer())
    host = Host("gpu1", "192.0.2.9", variables=variables)
    return run_probes(fleet, [host], [wanted_of("gemm", run)], None, lambda _: None), fleet


@pytest.mark.parametrize(
    ("variables", "failed"),
    [
        ({"nodectl_hardware": "h100-8"}, True),
        ({}, False),
        ({"nodectl_hardware": "h100-8", "nodectl_overrides": {"hardware": {"floors": []}}}, False),
    ],
)
def test_probes_are_held_against_the_inventory_s_profile(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, object], failed: bool
) -> None:
    result, _ = series(monkeypatch, variables)
    assert [str(each.status) for each in result.findings] == ["failed"] * failed
    assert (result.measurements[0].expected is not None) is failed


def test_a_profile_that_is_none_is_unknown_and_measured_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    result, _ = series(monkeypatch, {"nodectl_hardware": "h100-9"})
    assert [(str(each.status), each.hosts) for each in result.findings] == [("unknown", ("gpu1",))]
    assert "no reference" in result.measurements[0].conditions or result.measurements[0].expected is None
