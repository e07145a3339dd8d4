"""nvidia-smi -L and nvlink -s/-e: GPUs by row, their slices, their links, and GPUs that have none."""

from __future__ import annotations

import pytest

from nodectl.errors import ParseError
from nodectl.facts.parsers.nvidia.smi_nvlink import NvLink, parse_nvidia_smi_nvlink
from nodectl.facts.parsers.nvidia.smi_query import ListedGpu, ListedMig, parse_nvidia_smi_list
from tests.facts.parsers.tool_outputs import recorded_text

LIST = """\
GPU 0: NVIDIA H100 (80GB) (UUID: GPU-00000000-0000-0000-0000-000000000001)
  MIG 3g.40gb     Device  0: (UUID: MIG-00000000-0000-0000-0000-00000000000a)
  MIG 1c.2g.20gb  Device  1: (UUID: MIG-GPU-00000000-0000-0000-0000-000000000001/7/0)
Unable to determine the device handle for GPU1: 0000:5F:00.0: Unknown Error
GPU 2: NVIDIA H100 PCIe (UUID: [Unknown Error])
"""


@pytest.mark.parametrize("text", [LIST, "$ nvidia-smi -L\n" + LIST.replace("\n", "\r\n"), LIST + "user@host:~$ "])
def test_list(text: str) -> None:
    found = parse_nvidia_smi_list(text)
    first, second = "MIG-00000000-0000-0000-0000-00000000000a", "MIG-GPU-00000000-0000-0000-0000-000000000001/7/0"
    slices = (ListedMig("3g.40gb", first, 0), ListedMig("1c.2g.20gb", second, 1))
    assert found.gpus == (
        ListedGpu(0, "NVIDIA H100 (80GB)", "GPU-00000000-0000-0000-0000-000000000001", slices),
        ListedGpu(2, "NVIDIA H100 PCIe", None, (), {"uuid": "[Unknown Error]"}),
    )
    assert [lost.bus_id for lost in found.lost] == ["0000:5F:00.0"]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "empty"),
        ("No devices were found\n", "No devices were found"),
        (LIST[:60], "line 1"),
        (LIST[: LIST.index(" (UUID: MIG-0")], "line 2"),
        ("  MIG 3g.40gb     Device  0: (UUID: MIG-1)\n", "line 1"),
        ("Unable to determine the device handle for GPU0000:25:00.0: Unknown Error\n", "GPU0000:25:00.0"),
    ],
)
def test_list_that_is_refused(text: str, told: str) -> None:
    with pytest.raises(ParseError, match=told):
        parse_nvidia_smi_list(text)


STATE = recorded_text("nvidia-smi-nvlink-state.txt")
ERRORS = recorded_text("nvidia-smi-nvlink-errors.txt")
COUNTED = {"Replay Errors": 1, "Recovery Errors": 2, "CRC Errors": 3}


def test_state_of_links_and_of_gpus_without() -> None:
    gpus = parse_nvidia_smi_nvlink(STATE).gpus
    assert [(gpu.index, gpu.name, gpu.uuid) for gpu in gpus][:2] == [
        (0, "NVIDIA A100", "GPU-a"),
        (1, "NVIDIA L40S", "GPU-b"),
    ]
    assert gpus[0].links == (
        NvLink(0, True, 25.0, None, None, None),
        NvLink(1, False, None, None, None, None),
        NvLink(2, True, 26.562, None, None, None),
    )
    assert [gpu.links for gpu in gpus[1:]] == [(), None, None, None]
    assert ["links" in gpu.unavailable for gpu in gpus] == [False, False, True, True, False]
    assert gpus[3].message == "NVML: Unable to retrieve Nvlink information as all links are inActive"


def test_error_counters_alone_and_with_the_state() -> None:
    links = parse_nvidia_smi_nvlink(ERRORS).gpus[0].links
    assert links == (
        NvLink(0, None, None, 1, 2, 3, COUNTED),
        NvLink(
            *(2, None, None, None, None, None),
            {"Effective Errors": 18446744073709551, "Effective BER": "15e-255"},
            {"replay_errors": "N/A"},
        ),
    )
    both = parse_nvidia_smi_nvlink(STATE + ERRORS).gpus[0].links
    assert both is not None
    assert (both[0].active, both[0].speed_gb_s, both[0].crc_errors) == (True, 25.0, 3)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "empty"),
        ("Link 0: 25 GB/s\n", "line 1"),
        (STATE[: STATE.index(" GB/s\n\t Link 1")], "line 2.*'.*25'"),
        (STATE[: STATE.index("inactive")], "line 3"),
        (STATE[: STATE.index(": <inactive")], "line 3.*cut"),
        (ERRORS.replace("Errors: 3", "Errors: 3e"), "line 4.*no number"),
        ("GPU 0: NVIDIA A100 (UUID: GPU-\n", "line 1"),
        ("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.", "couldn't communicate"),
    ],
)
def test_nvlink_that_is_refused(text: str, told: str) -> None:
    with pytest.raises(ParseError, match=told):
        parse_nvidia_smi_nvlink(text)


def test_a_counter_of_64_bits() -> None:
    text = f"GPU 0: NVIDIA A100 (UUID: GPU-71)\n\t Link 3: CRC Errors: {2**64 - 1}\n"
    links = parse_nvidia_smi_nvlink(text).gpus[0].links
    assert links is not None
    assert links[0].crc_errors == 2**64 - 1
