"""GPUs and their links from what nvidia-smi prints: whole, in part, refused, of a lost GPU, or not at all."""

import pytest

from nodectl.facts.gpu_services import FabricManager
from nodectl.facts.gpus import Gpus
from nodectl.facts.parsers.nvidia.smi_q.fields import GpuProcess
from tests.facts.parsers.tool_outputs import recorded_text
from tests.facts.recorded import fact

REPORT = recorded_text("gpu-facts-report.txt")
TABLE = """\
index, name, uuid, pci.bus_id, memory.total [MiB], driver_version, vbios_version
0, NVIDIA A100-SXM4-80GB, GPU-a, 00000000:07:00.0, 81920 MiB, 580.95.05, 92.00.81.00.01
2, NVIDIA A100-SXM4-80GB, GPU-c, 00000000:47:00.0, 81920 MiB, 580.95.05, 92.00.81.00.01
"""
LOST = "Unable to determine the device handle for GPU1: 0000:0F:00.0: Unknown Error\n"
LINKS = """\
GPU 0: NVIDIA A100-SXM4-80GB (UUID: GPU-a)
\t Link 0: 25 GB/s
\t Link 1: <inactive>
"""
ERRORS = """\
GPU 0: NVIDIA A100-SXM4-80GB (UUID: GPU-a)
\t Link 0: Replay Errors: 0
\t Link 0: Recovery Errors: 1
\t Link 0: CRC Errors: 7
\t Link 1: Replay Errors: 2
\t Link 1: Recovery Errors: 0
\t Link 1: CRC Errors: 0
"""


def test_the_report_with_the_tables_indexes() -> None:
    gpus = fact("gpus", nvidia_smi_q=REPORT, nvidia_smi_query=TABLE)
    assert (gpus.count, gpus.source, gpus.lost) == (2, "nvidia-smi-q", ())
    assert (gpus.driver_version, gpus.cuda_version) == ("580.95.05", "13.0")
    first, second = gpus.devices
    assert (first.index, first.uuid, first.bus_id) == (0, "GPU-a", "0000:07:00.0")
    assert (first.serial, first.vbios_version, first.memory_total_mib) == ("1560000000001", "92.00.81.00.01", 81920)
    assert (first.pcie_width_current, first.pcie_width_max, first.pcie_gen_current) == (8, 16, 4)
    assert (first.ecc_mode_current, first.ecc_mode_pending, first.temperature_c) == (True, False, 31)
    assert first.processes == (GpuProcess(4242, "C", "python3", 2040, unavailable={"gpu_instance_id": "N/A"}),)
    # the middle one is gone: the driver's numbers stay, the report's order does not show the gap
    assert (second.index, second.persistence_mode, second.ecc_mode_current, second.processes) == (2, False, None, ())
    assert (second.temperature_c, second.unavailable["temperature_c"]) == (None, "ERR!")
    assert [gpu.index for gpu in fact("gpus", nvidia_smi_q=REPORT).devices] == [0, 1]


def test_a_report_that_crashes_leaves_what_the_query_lists() -> None:
    gpus = fact("gpus", nvidia_smi_q=(139, "\n".join(REPORT.splitlines()[:12])), nvidia_smi_query=TABLE)
    assert (gpus.source, gpus.count, gpus.disputed) == ("nvidia-smi-query", 2, "nvidia-smi -q was killed by signal 11")


def test_a_shorter_command_stands_in_for_the_report() -> None:
    told = fact("gpus", nvidia_smi_q=124, nvidia_smi_query=(15, TABLE + LOST))
    assert (told.source, told.count, told.lost) == ("nvidia-smi-query", 2, ("0000:0F:00.0",))


@pytest.mark.parametrize(
    "word",
    [
        *("18446744073709551615", "Argument version mismatch", "Driver/library version mismatch", "Not Ready"),
        *(
            "System is not in ready state",
            "GPU not found",
            "The requested functionality has been deprecated",
            "Unknown",
        ),
    ],
)
@pytest.mark.parametrize(
    ("field", "printed"), [("memory_total_mib", "81920 MiB"), ("persistence_mode", "Enabled"), ("uuid", "GPU-a")]
)
def test_a_value_that_cannot_be_read_hides_no_other(word: str, field: str, printed: str) -> None:
    gpus = fact("gpus", nvidia_smi_q=REPORT.replace(f": {printed}", f": {word}", 1), nvidia_smi_query=TABLE)
    first, second = gpus.devices
    assert (gpus.source, first.temperature_c, second.uuid) == ("nvidia-smi-q", 31, "GPU-c")
    if field != "uuid" or word not in ("Unknown", "18446744073709551615"):
        assert (getattr(first, field), first.unavailable[field]) == (None, word)


def test_a_uuid_that_two_gpus_have_is_no_second_output() -> None:
    report, table = (text.replace("GPU-c", "GPU-a") for text in (REPORT, TABLE))
    for gpus in (fact("gpus", nvidia_smi_q=report, nvidia_smi_query=table), fact("gpus", nvidia_smi_query=table)):
        assert [(gpu.index, gpu.uuid) for gpu in gpus.devices] == [(0, "GPU-a"), (2, "GPU-a")]


def test_lines_that_end_as_on_windows() -> None:
    listed = "GPU 0: NVIDIA A100-SXM4-80GB (UUID: GPU-a)\r\nGPU 2: NVIDIA A100-SXM4-80GB (UUID: GPU-c)\r\n"
    assert [gpu.index for gpu in fact("gpus", nvidia_smi_list=listed).devices] == [0, 2]
    report = REPORT.replace("\n", "\r\n")
    assert fact("gpus", nvidia_smi_q=report, nvidia_smi_query=TABLE).disputed.startswith("the header of nvidia-smi -q")
    assert "stands twice" in fact("gpus", nvidia_smi_q=report + report).reason
    assert fact("nvlink", nvidia_smi_nvlink=LINKS.replace("\n", "\r\n")).gpus[0].index == 0


def test_all_that_are_lost_are_named_by_the_command_that_goes_on() -> None:
    one, all_ = (
        "".join(f"{LOST.partition('1:')[0]}{n}: GPU is lost.  Reboot\n" for n in range(most)) for most in (1, 8)
    )
    assert len(fact("gpus", nvidia_smi_q=(15, one), nvidia_smi_query=(15, one), nvidia_smi_list=(15, all_)).lost) == 8


def test_why_a_fuller_command_was_not_read() -> None:
    gpus = fact("gpus", nvidia_smi_q=(0, "", "no way to print\n"), nvidia_smi_query=TABLE)
    assert (gpus.unread, gpus.disputed) == ("nvidia-smi-q printed only a complaint: no way to print", "")
    report = REPORT.replace(": 3\n", ": 2\n", 1)
    assert fact("gpus", nvidia_smi_q=report).disputed == "nvidia-smi-query is not in the recording"
    assert fact("gpus", nvidia_smi_q=report, nvidia_smi_query=124).disputed == "nvidia-smi-query did not end in time"


def test_links_with_their_counters() -> None:
    (gpu,) = fact("nvlink", nvidia_smi_nvlink=LINKS, nvidia_smi_nvlink_errors=ERRORS).gpus
    assert [(link.active, link.speed_gb_s, link.recovery_errors, link.crc_errors) for link in gpu.links] == [
        (True, 25.0, 1, 7),
        (False, None, 0, 0),
    ]
    (alone,) = fact("nvlink", nvidia_smi_nvlink=LINKS, nvidia_smi_nvlink_errors=127).gpus
    assert [(link.active, link.crc_errors) for link in alone.links] == [(True, None), (False, None)]


def test_fabric_manager_with_and_without_systemd() -> None:
    says = "Fabric Manager version is : 580.95.05\n"
    units = (
        "system running\nId=nvidia-fabricmanager.service\nLoadState=loaded\nActiveState=active\nUnitFileState=enabled\n"
    )
    assert fact("fabric_manager", fabric_manager=says, units=units) == FabricManager("580.95.05", "active")
    assert fact("fabric_manager", fabric_manager=says, units=3) == FabricManager("580.95.05")
    assert fact("fabric_manager", fabric_manager="hello\n").kind == "unknown"
    assert fact("fabric_manager", fabric_manager=127).kind == "absent"


@pytest.mark.parametrize(
    "text", [LOST, "Unable to determine the device handle for GPU 0000:0F:00.0: GPU is lost.  Reboot\n"]
)
def test_where_nvidia_smi_says_only_which_gpu_it_cannot_reach_that_one_is_lost(text: str) -> None:
    told = fact("gpus", nvidia_smi_q=(255, text), nvidia_smi_query=(255, text))
    assert isinstance(told, Gpus)
    assert (told.count, told.lost) == (0, ("0000:0F:00.0",))
