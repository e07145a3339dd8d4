"""Which figures of the GPU probes a hardware profile's floors are held against, and which not."""

from typing import Any

import pytest

from nodectl.probes.base import ProbeResult
from nodectl.probes.device.gemm import PROBE as GEMM
from nodectl.probes.device.h2d import PROBE as H2D
from nodectl.probes.floors import Reference, held_against
from nodectl.probes.registry import AnyProbe
from nodectl.profiles.resolve import without_stack
from tests.probes.device_answers import SEEN, devices, probe
from tests.probes.scripted import HOSTS


def held(monkeypatch: pytest.MonkeyPatch, declared: AnyProbe, *events: dict[str, Any]) -> ProbeResult:
    """On one host that is said to be an H200 with NVSwitch."""
    result, _ = probe(monkeypatch, declared, lambda host, number: [devices(2), *events], hosts=HOSTS[:1], gpus=2)
    hardware = without_stack("h200-8", "stock").hardware
    return held_against(result, {HOSTS[0].name: Reference("h200-8", hardware, "nvswitch")})


def told(**more: Any) -> dict[str, Any]:
    return {"event": "measured", "gpu": 0, "wrong": 0, "passes": 1, "size_bytes": 1 << 28, "seen": SEEN, **more}


@pytest.mark.parametrize(
    ("precision", "part", "missed"), [("bf16", 0.97, False), ("bf16", 0.9, True), ("fp32", 0.1, None)]
)
def test_gemm_by_its_precision(
    monkeypatch: pytest.MonkeyPatch, precision: str, part: float, missed: bool | None
) -> None:
    hardware = without_stack("h200-8", "stock").hardware
    (floor,) = [each for each in hardware.floors if each.conditions == {"precision": "bf16"}]
    known = {"shape": [1, 1, 1], "layout": "nn", "sets": 1, "checked": 1, "changed": 0, "error": 0.0}
    found = held(monkeypatch, GEMM, told(precision=precision, rates=[part * floor.value], **known))
    assert found.measurements[0].expected == (None if missed is None else floor.value)
    assert any(each.status.value == "failed" for each in found.findings) is bool(missed)


def test_h2d_near_and_not_far(monkeypatch: pytest.MonkeyPatch) -> None:
    known = {"to_gpu": True, "numa_found": None, "bound": True, "rates": [30.0]}
    near, far = (told(place=place, numa=node, **known) for place, node in (("near", 0), ("far", 1)))
    found = held(monkeypatch, H2D, near, far)
    assert [each.expected is None for each in found.measurements] == [False, True]
    assert [each.host for each in found.findings if each.status.value == "failed"] == ["node01"]
