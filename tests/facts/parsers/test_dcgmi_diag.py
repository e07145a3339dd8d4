"""dcgmi diag: the tables of DCGM 2 to 4, their JSON, and why there is no report."""

from __future__ import annotations

import json
from typing import Any

import pytest

from nodectl.errors import ParseError
from nodectl.facts.parsers.nvidia.dcgmi import DiagTest, parse_dcgmi_diag


def row(name: str, cell: str) -> str:
    return f"| {name:<25} | {cell:<46} |"


HEAD = [
    "Successfully ran diagnostic for group.",
    "+---------------------------+------------------------------------------------+",
    row("Diagnostic", "Result"),
    "+===========================+================================================+",
    "|-----  Metadata  ----------+------------------------------------------------|",
    row("DCGM Version", "3.1.3"),
    row("Driver Version Detected", "525.60.13"),
]
THREE = "\n".join(
    [
        *HEAD,
        "|-----  Deployment  --------+------------------------------------------------|",
        row("Denylist", "Pass"),
        row("Page Retirement/Row Remap", "Fail"),
        row("Error", "GPU 3 has uncorrectable memory errors and row"),
        row("", " remappings are pending"),
        "+-----  Integration  -------+------------------------------------------------+",
        row("PCIe", "Pass - GPUs: 0, 2"),
        row("", "Fail - GPU: 1"),
        row("Warning", "GPU 1 Error using CUDA API cudaDeviceGetByPC."),
        "+-----  Hardware  ----------+------------------------------------------------+",
        row("GPU Memory", "Warn - GPU: 4; Pass - GPUs: 0, 1"),
        row("Diagnostic", "Skip - All"),
        row("Info", "GPU 0 Allocated 83751862272 bytes (98.5%), and"),
        row("", "then some."),
        "+---------------------------+------------------------------------------------+",
    ]
)
FOUR = "\n".join(
    [
        *HEAD,
        "|-----  Deployment  --------+------------------------------------------------|",
        row("software", "Fail"),
        row("", "GPU0: Pass"),
        row("", "GPU1: Fail"),
        row("Warning: GPU1", "Persistence mode for GPU 1 is disabled."),
    ]
)


def test_table_of_dcgm_3() -> None:
    found = parse_dcgmi_diag(THREE)
    assert found.metadata == {"DCGM Version": "3.1.3", "Driver Version Detected": "525.60.13"}
    remap = "GPU 3 has uncorrectable memory errors and row remappings are pending"
    assert found.tests == (
        DiagTest("Deployment", "Denylist", "Pass", {}, None),
        DiagTest("Deployment", "Page Retirement/Row Remap", "Fail", {}, remap),
        DiagTest(
            *("Integration", "PCIe", "Fail", {"0": "Pass", "2": "Pass", "1": "Fail"}),
            "GPU 1 Error using CUDA API cudaDeviceGetByPC.",
        ),
        DiagTest("Hardware", "GPU Memory", "Warn", {"4": "Warn", "0": "Pass", "1": "Pass"}, None),
        DiagTest(
            *("Hardware", "Diagnostic", "Skip", {}),
            # the first cell is filled to its edge
            "GPU 0 Allocated 83751862272 bytes (98.5%), andthen some.",
        ),
    )


@pytest.mark.parametrize(
    "text", [FOUR, FOUR.replace("\n", "\r\n"), "$ dcgmi diag -r 1\n" + FOUR + "\n$ \n", FOUR.replace("| GPU", "|  GPU")]
)
def test_table_of_dcgm_4(text: str) -> None:
    (test,) = parse_dcgmi_diag(text).tests
    assert (test.category, test.name, test.status) == ("Deployment", "software", "Fail")
    assert (test.gpus, test.text) == ({"0": "Pass", "1": "Fail"}, "Persistence mode for GPU 1 is disabled.")


def category(*tests: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"category": "Integration", "tests": list(tests)}]


JSON_3 = {
    "DCGM GPU Diagnostic": {
        "test_categories": category(
            {"name": "PCIe", "results": [{"gpu_ids": "0,2", "status": "PASS"}]},
            {
                "name": "Memory",
                "results": [
                    {"gpu_id": "0", "status": "Pass"},
                    {"gpu_id": "1", "status": "Fail", "warnings": ["too slow"], "info": "x"},
                ],
            },
            {"name": "Pulse", "results": [{"gpu_ids": "0,1", "status": "SKIPPED"}]},
        ),
        "version": "3.1.3",
    }
}
JSON_4 = {
    "DCGM Diagnostic": {
        "test_categories": category(
            {
                "name": "pcie",
                "results": [
                    {"entity_group": "GPU", "entity_group_id": 1, "entity_id": 0, "status": "Pass"},
                    {"entity_group": "GPU", "entity_id": 3, "status": "Fail", "warnings": [{"warning": "slow"}]},
                    {"entity_group": "CPU", "entity_id": 7, "status": "Skip"},
                ],
                "test_summary": {"status": "Fail"},
            }
        )
    },
    "entity_groups": [],
}


def test_json_of_dcgm_3_and_4() -> None:
    assert parse_dcgmi_diag("Warning: x\n" + json.dumps(JSON_3, indent=4) + "\n").tests == (
        DiagTest("Integration", "PCIe", "Pass", {"0": "Pass", "2": "Pass"}, None),
        DiagTest("Integration", "Memory", "Fail", {"0": "Pass", "1": "Fail"}, "too slow; x"),
        DiagTest("Integration", "Pulse", "Skip", {"0": "Skip", "1": "Skip"}, None),
    )
    assert parse_dcgmi_diag(json.dumps(JSON_4)).tests == (
        DiagTest("Integration", "pcie", "Fail", {"0": "Pass", "3": "Fail"}, "slow"),
    )


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "empty"),
        ("hello\n", "line 1: 'hello'"),
        ("Error: unable to establish a connection to the specified host: localhost\n", "unable to establish"),
        (THREE[: THREE.index("Fail ")], "line 10.*cut"),
        (THREE.replace("Pass  ", "Pale  ", 1), "line 9.*'Pale' does not begin with"),
        (json.dumps({"DCGM GPU Diagnostic": {"runtime_error": "Detected unsupported GPU"}}), "Detected unsupported"),
        (json.dumps({"DCGM Diagnostic": {"test_categories": [3]}}), "'3' is no object"),
        (json.dumps(JSON_3)[:-9], "line 1"),
    ],
)
def test_what_cannot_be_read_is_refused(text: str, told: str) -> None:
    with pytest.raises(ParseError, match=told):
        parse_dcgmi_diag(text)
