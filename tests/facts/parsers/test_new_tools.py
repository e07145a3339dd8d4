"""Tools of real sites: every column once, a cut row, and another vendor's tool refused by its name."""

from __future__ import annotations

import pytest

from nodectl.errors import ParseError
from nodectl.facts.parsers.catalogue import as_document, parser_of
from nodectl.facts.parsers.nvidia.fabricmanager_log import FabricManagerEvent, parse_fabricmanager_log
from nodectl.facts.parsers.nvidia.smi_nvlink import parse_nvidia_smi_nvlink
from nodectl.facts.parsers.nvidia.smi_query import NvidiaSmiVersion, parse_nvidia_smi_version
from nodectl.facts.parsers.nvidia.smi_table import NvidiaSmi, TableGpu, TableProcess, parse_nvidia_smi
from tests.facts.parsers.tool_outputs import tool_output


def test_the_plain_table_of_nvidia_smi() -> None:
    first = TableGpu(0, "NVIDIA H100 80GB HBM3", "0000:19:00.0", True, 3, 27, "P0", 72, 700, 5, 81559, 17)
    second = TableGpu(1, "NVIDIA GeForce RTX 4090", "0000:3B:00.0", False, None, 41, "P8", 21, 450, 913, 24564, 2)
    process = TableProcess(1, 11327, "C", "/opt/train --fast", 811)
    text = tool_output("nvidia-smi", "two.txt")
    assert parse_nvidia_smi(text) == NvidiaSmi("580.95.06", "13.0", (first, second), (process,))
    with pytest.raises(ParseError, match=r"line 9.*second row of this GPU is cut"):
        parse_nvidia_smi(text[: text.index("/  81559MiB")])


_TABLE = """\
+-----------------------------------------------------------------------------------------+
| NVIDIA-SMI {driver}             Driver Version: {driver}     CUDA Version: 13.0     |
|-----------------------------------------+------------------------+----------------------+
| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |
| Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. |
|=========================================+========================+======================|
{rows}
+-----------------------------------------------------------------------------------------+
"""


_ROWS = (
    "|   0  NVIDIA GB10                    On  |   0000000F:01:00.0 Off |                  N/A |",
    "| N/A   37C    P8              5W /  N/A  | Not Supported          |      2%      Default |",
)


def test_a_sick_gpu_is_no_cut_row() -> None:
    rows = (
        "|   0  ERR!                           Off |   00000000:19:00.0 Off |                 ERR! |\n"
        "|ERR!  ERR! ERR!             ERR! / ERR!  |       1MiB /  81559MiB |    ERR!      Default |\n"
        "|                                         |                        |                 ERR! |"
    )
    (gpu,) = parse_nvidia_smi(_TABLE.format(driver="580.126.09", rows=rows)).gpus
    assert (gpu.index, gpu.bus_id, gpu.temperature_c, gpu.power_draw_w) == (0, "0000:19:00.0", None, None)
    assert {*gpu.unavailable} >= {"name", "temperature_c", "performance_state", "utilization_percent"}


@pytest.mark.parametrize(
    ("rows", "gpu"),
    [
        (
            (
                "|   0  NVIDIA GB10                    On  |   0000000F:01:00.0 Off |                  N/A |\n"
                "| N/A   37C    P8              5W /  N/A  | Not Supported          |      2%      Default |"
            ),
            TableGpu(0, "NVIDIA GB10", "000F:01:00.0", True, None, 37, "P8", 5, None, None, None, 2),
        ),
        (
            (
                "|   0  Orin (nvgpu)                  N/A  | N/A                N/A |                  N/A |\n"
                "| N/A   N/A  N/A               N/A /  N/A | Not Supported          |     N/A          N/A |"
            ),
            TableGpu(0, "Orin (nvgpu)", None, None, None, None, None, None, None, None, None, None),
        ),
        (
            (
                "|   0  NVIDIA GeForce RTX 3050      WDDM  |   00000000:01:00.0  On |                  N/A |\n"
                "|  0%   45C    P8              46W / 115W |     166MiB /  8192MiB  |      3%      Default |"
            ),
            TableGpu(0, "NVIDIA GeForce RTX 3050", "0000:01:00.0", None, None, 45, "P8", 46, 115, 166, 8192, 3),
        ),
    ],
)
def test_tables_of_shared_memory_and_of_windows(rows: str, gpu: TableGpu) -> None:
    assert parse_nvidia_smi(_TABLE.format(driver="580.126.09", rows=rows)).gpus == (gpu,)


@pytest.mark.parametrize(
    ("rows", "why"),
    [
        ("|   0  A new form of GPU | something | else |", "the row of a GPU is cut, or has another form"),
        (
            "|   0  NVIDIA GB10                    On  |   0000000F:01:00",
            "the row of a GPU is cut, or has another form",
        ),
        ("|                                         |                        |                  N/A |", "no "),
        (f"{_ROWS[0]}\n{_ROWS[1]}\n|   1  N\ufffd\ufffd|@@ 0000\n{_ROWS[1]}", "row of a GPU is cut or garbled"),
        (f"{_ROWS[0]}\n{_ROWS[1]}\n{_ROWS[1]}", "no row with the name of its GPU stands before"),
    ],
)
def test_a_table_without_a_gpu_that_can_be_read_is_refused(rows: str, why: str) -> None:
    with pytest.raises(ParseError, match=why):
        parse_nvidia_smi(_TABLE.format(driver="580.126.09", rows=rows))


def test_versions_and_nvlink_s_own() -> None:
    text = tool_output("nvidia-smi-version", "one.txt")
    assert parse_nvidia_smi_version(text) == NvidiaSmiVersion("580.95.05", "580.95", "580.95.06", "13.0")
    info = "GPU 0: NVIDIA B200 (UUID: GPU-1-2)\n\t NVLE: Disabled\n\t Firmware Version: N/A\n"
    (gpu,) = parse_nvidia_smi_nvlink(info).gpus
    assert (gpu.info, gpu.links) == ({"NVLE": "Disabled", "Firmware Version": "N/A"}, None)


def test_fabric_manager_s_log() -> None:
    log = parse_fabricmanager_log(tool_output("fabricmanager-log", "two.txt"))
    text = "failed to find the GPU handle 17 in the multi node fabric"
    assert log.events == (FabricManagerEvent("Wed Mar  4 2026 05:06:09", "ERROR", text),)
    assert log.lines == 2
    why = "fabric manager NVIDIA GPU driver interface version 530.30.02 don't match with driver version 530.41.03."
    journal = parse_fabricmanager_log(f"nv-fabricmanager[7]: {why}\n")
    assert (journal.manager_version, journal.driver_version) == ("530.30.02", "530.41.03")


ROCM = "========== ROCm System Management Interface ==========\nGPU[0] : Temperature: 41.0c\n"


@pytest.mark.parametrize(
    "tool", ["nvidia-smi", "nvidia-smi-q", "nvidia-smi-list", "nvidia-smi-topo", "nvidia-smi-query"]
)
def test_rocm_smi_is_refused_by_name(tool: str) -> None:
    with pytest.raises(ParseError, match="rocm-smi"):
        parser_of(tool)(ROCM)


@pytest.mark.parametrize(
    "tool",
    ["nvidia-smi", "nvidia-smi-version", "fabricmanager-log"],
)
def test_text_of_something_else_is_refused(tool: str) -> None:
    for text in ("", "hello\n", "bash: x: command not found\n"):
        with pytest.raises(ParseError):
            as_document(parser_of(tool)(text))
