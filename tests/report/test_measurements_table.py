"""What the table says beside a figure of a GPU."""

from collections.abc import Mapping

import pytest

from nodectl.model.measurement import Measurement
from nodectl.probes.registry import kind_of
from nodectl.report.measurements import measurements_table

H200 = {"device": "NVIDIA H200", "clock_mhz": 1755.0, "temperature_c": 61.0, "throttled": ["power cap"]}


@pytest.mark.parametrize(
    ("probe", "unit", "conditions", "said"),
    [
        (
            "gemm",
            "TFLOPS",
            {**H200, "precision": "bf16", "best_shape": "8192x8192x4096"},
            "bf16, 8192x8192x4096, NVIDIA H200, 1755 MHz, 61 °C, limited by power cap",
        ),
        ("gemm", "TFLOPS", {"precision": "fp32", "device": "cpu", "threads": 64}, "fp32, 64 processors"),
        ("hbm", "GB/s", {"array_mib": 4096, "throttled": []}, "read and written, 4096 MiB"),
        (
            "p2p",
            "GB/s",
            {"connection": "direct", "link": "PIX", "can_access_peer": False},
            "direct, PIX, no peer access",
        ),
        ("h2d", "GB/s", {"memory": "far", "link": "PCIe gen 5 x16"}, "far memory, PCIe gen 5 x16"),
        ("gemm", "wrong results", {"precision": "fp16", "rounds": 9}, "fp16, 9 products"),
    ],
)
def test_the_conditions_that_matter_stand_in_the_table(
    probe: str, unit: str, conditions: Mapping[str, object], said: str
) -> None:
    one = Measurement(probe, ("gpu01",), 2.0, unit, "gpu01 GPU 0", None, 0.02, conditions)
    _, row = measurements_table([one], kind_of).splitlines()
    value = "2 wrong results" if unit == "wrong results" else f"2.00 {unit}"
    assert " ".join(row.split()) == f"{probe} gpu01 GPU 0 {value} 2.0 % {said}"
