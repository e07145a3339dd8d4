"""The h2d probe: near and far memory, the profile's condition for the near one, links that trained down."""

from typing import Any

import pytest

from nodectl.probes.device.h2d import PROBE as H2D
from tests.probes.device_answers import devices, probe
from tests.probes.scripted import HOSTS


def copied(gpu: int, to_gpu: bool, place: str, rate: float, **more: Any) -> dict[str, Any]:
    node = {"near": 0, "far": 1, "any": None}[place]
    known = {"event": "measured", "gpu": gpu, "to_gpu": to_gpu, "place": place, "numa": node}
    return {**known, "rates": [rate], "wrong": 0, "size_bytes": 256 << 20, "passes": 40, **more}


def both(rate: float = 55.0, **more: Any) -> list[dict[str, Any]]:
    near = [copied(0, way, "near", rate + way, **more) for way in (True, False)]
    return [devices(1), *near, *(copied(0, way, "far", 0.8 * rate, **more) for way in (True, False))]


def test_near_and_far_there_and_back(monkeypatch: pytest.MonkeyPatch) -> None:
    result, _ = probe(monkeypatch, H2D, lambda host, number: both(), hosts=HOSTS[:1], gpus=1)
    assert result.findings == ()
    found = [(m.direction, m.conditions["memory"], m.value) for m in result.measurements]
    assert found == [
        ("node01 host -> GPU 0", "near", 56.0),
        ("node01 GPU 0 -> host", "near", 55.0),
        ("node01 host -> GPU 0", "far", 44.0),
        ("node01 GPU 0 -> host", "far", 44.0),
    ]
    # a floor of the profile is asked for by the PCIe generation
    assert [m.conditions.get("pcie_gen") for m in result.measurements] == [5, 5, None, None]
    assert {m.conditions["link"] for m in result.measurements} == {"PCIe gen 5 x16"}


@pytest.mark.parametrize(
    ("now", "text"),
    [
        ({"pcie_gen_now": 5.0, "pcie_width_now": 16.0}, ""),
        ({"pcie_gen_now": None, "pcie_width_now": None}, ""),
        ({"pcie_gen_now": 5.0, "pcie_width_now": 8.0}, "GPU 0 runs at PCIe gen 5 x8 under load; gen 5 x16 is possible"),
        (
            {"pcie_gen_now": 3.0, "pcie_width_now": 16.0},
            "GPU 0 runs at PCIe gen 3 x16 under load; gen 5 x16 is possible",
        ),
    ],
)
def test_a_link_that_trained_down_fails(monkeypatch: pytest.MonkeyPatch, now: dict[str, Any], text: str) -> None:
    result, _ = probe(monkeypatch, H2D, lambda host, number: both(seen=now), hosts=HOSTS[:1], gpus=1)
    assert [(each.status.value, each.actual) for each in result.findings] == ([("failed", text)] if text else [])
