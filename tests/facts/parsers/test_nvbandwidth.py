"""nvbandwidth: matrices of text and JSON, tests that were waived, and latencies, which are no bandwidth."""

from __future__ import annotations

import json

import pytest

from nodectl.errors import ParseError
from nodectl.facts.parsers.nvidia.nvbandwidth import BandwidthTest, parse_nvbandwidth
from tests.facts.parsers.tool_outputs import recorded_text

TEXT = recorded_text("nvbandwidth-text.txt")
TESTS = (
    BandwidthTest("host_to_device_memcpy_ce", ((55.36, 54.25),), 109.61, "GB/s", None, 109.61),
    BandwidthTest("device_to_device_memcpy_read_ce", ((None, 276.07), (276.19, None)), 552.26, "GB/s", None, 552.26),
    BandwidthTest("multinode_device_to_device_memcpy_read_ce", None, None, None, "Waived"),
    BandwidthTest("host_device_latency_sm", ((772.58, 780.25),), None, "ns", None, 1552.83),
)
WHOLE = TEXT[: TEXT.index("Running device_local_copy")]


@pytest.mark.parametrize(
    "text", [WHOLE, WHOLE.replace("\n", "\r\n"), "".join(f"[1,0]<stdout>:{line}\n" for line in WHOLE.splitlines())]
)
def test_every_value_of_the_text(text: str) -> None:
    found = parse_nvbandwidth(text)
    assert (found.tests, found.version, found.driver_version) == (TESTS, "v0.8", "550.54.15")


def test_a_report_that_ends_between_rows_has_no_sum() -> None:
    cut = WHOLE[: WHOLE.index(" 1    276.19")]
    assert parse_nvbandwidth(cut).tests[1] == BandwidthTest(
        "device_to_device_memcpy_read_ce", ((None, 276.07),), None, "GB/s"
    )


JSON = {
    "nvbandwidth": {
        "CUDA Runtime Version": 12040,
        "Driver Version": "550.54.15",
        "git_version": "v0.8",
        "testcases": [
            {
                "name": "device_to_device_memcpy_read_ce",
                "status": "Passed",
                "bandwidth_description": "memcpy CE GPU(row) -> GPU(column) bandwidth (GB/s)",
                "bandwidth_matrix": [["N/A", "276.07"], ["276.19", "N/A"]],
                "sum": 552.26,
            },
            {"name": "multinode", "status": "Waived"},
        ],
    }
}


@pytest.mark.parametrize("text", [json.dumps(JSON), "log {x}\n" + json.dumps(JSON, indent=2) + "\ndone\n"])
def test_every_value_of_the_json(text: str) -> None:
    found = parse_nvbandwidth(text)
    assert (found.version, found.driver_version) == ("v0.8", "550.54.15")
    assert found.tests == (
        BandwidthTest("device_to_device_memcpy_read_ce", TESTS[1].matrix, 552.26, "GB/s", "Passed", 552.26),
        BandwidthTest("multinode", None, None, None, "Waived"),
    )


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "empty"),
        ("hello\n", "line 1: 'hello'"),
        ("Failed to initialize NVML\n", "Failed to initialize"),
        (TEXT, "line 39.*1 value under 2"),
        (WHOLE.replace("54.25", "54,25"), "line 13.*'54,25' is no number"),
        (WHOLE.replace("SUM host_to_device_memcpy_ce 109.61", "SUM host_to_dev"), "line 15.*cut"),
        (json.dumps({"nvbandwidth": {"error": "no CUDA device"}}), "no CUDA device"),
        (json.dumps({"nvbandwidth": {"testcases": [{"name": "a", "bandwidth_matrix": [["x"]]}]}}), "'x' is no number"),
        (json.dumps({"nvbandwidth": {"testcases": [{"name": "a", "bandwidth_matrix": 3}]}}), "no list of rows"),
    ],
)
def test_what_cannot_be_read_is_refused(text: str, told: str) -> None:
    with pytest.raises(ParseError, match=told):
        parse_nvbandwidth(text)
