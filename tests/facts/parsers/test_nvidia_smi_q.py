"""nvidia-smi -q, text and XML: every value, what is refused, what is cut, and what is no report."""

from __future__ import annotations

from pathlib import Path

import pytest

from nodectl.errors import ParseError
from nodectl.facts.parsers.nvidia.smi_q.fields import GpuProcess, MigDevice
from nodectl.facts.parsers.nvidia.smi_q.report import parse_nvidia_smi_q
from tests.facts.parsers.tool_outputs import recorded_text

FIXTURES = Path(__file__).parents[2] / "fixtures" / "nvidia"
OLD = (FIXTURES / "q-390-old-faults.txt").read_text()
MIG = (FIXTURES / "q-590-mig.txt").read_text()
SHORT = recorded_text("nvidia-smi-q-short.txt")

# GPU 0 of q-390-old-faults.txt: each value of another size, so that none can stand for another
OLD_VALUES = {
    "bus_id": "0000:05:00.0",
    "uuid": "GPU-0a1b2c3d-1111-2222-3333-444455556666",
    "name": "Tesla V100-SXM2-16GB",
    "serial": "0321017012345",
    "product_architecture": None,
    "brand": "Tesla",
    "minor_number": 0,
    "vbios_version": "88.00.1A.00.03",
    "part_number": "900-2G503-0000-000",
    "board_id": "0x500",
    "inforom_version": "G503.0201.00.03",
    "virtualization_mode": "None",
    "display_active": False,
    "persistence_mode": False,
    "compute_mode": "Default",
    "performance_state": "P2",
    "memory_total_mib": 16160,
    "memory_used_mib": 11,
    "memory_free_mib": 16149,
    "bar1_total_mib": 16384,
    "bar1_used_mib": 2,
    "mig_mode": None,
    "mig_devices": None,
    "ecc_mode_current": True,
    "ecc_mode_pending": False,
    "ecc_volatile_correctable": 5,
    "ecc_volatile_uncorrectable": 2,
    "ecc_aggregate_correctable": 50,
    "ecc_aggregate_uncorrectable": 21,
    "ecc_volatile_dram_correctable": 4,
    "ecc_aggregate_dram_uncorrectable": 20,
    "retired_pages_single_bit": 6,
    "retired_pages_double_bit": 3,
    "retired_pages_pending": True,
    "remapped_correctable": None,
    "pcie_gen_current": 1,
    "pcie_gen_max": 3,
    "pcie_width_current": 8,
    "pcie_width_max": 16,
    "pcie_replay_counter": 17,
    "pcie_tx_kb_s": 1000,
    "pcie_rx_kb_s": 2000,
    "temperature_c": 61,
    "temperature_shutdown_c": 90,
    "temperature_slowdown_c": 87,
    "temperature_max_operating_c": 83,
    "memory_temperature_c": 59,
    "memory_temperature_max_c": 85,
    "power_draw_w": 151.25,
    "power_limit_w": 250.0,
    "power_limit_default_w": 300.0,
    "power_limit_enforced_w": 240.0,
    "power_limit_min_w": 150.0,
    "power_limit_max_w": 310.0,
    "graphics_clock_mhz": 1312,
    "sm_clock_mhz": 1313,
    "memory_clock_mhz": 877,
    "video_clock_mhz": 1177,
    "applications_graphics_clock_mhz": 1290,
    "applications_memory_clock_mhz": 876,
    "graphics_clock_max_mhz": 1530,
    "sm_clock_max_mhz": 1531,
    "memory_clock_max_mhz": 878,
    "utilization_gpu_percent": 7,
    "utilization_memory_percent": 3,
    "fabric_state": None,
}


def test_every_value_of_an_old_driver() -> None:
    report = parse_nvidia_smi_q(OLD)
    gpu = report.gpus[0]
    assert {name: getattr(gpu, name) for name in OLD_VALUES} == OLD_VALUES
    assert (report.driver_version, report.cuda_version, report.attached_gpus) == ("390.116", None, 3)
    assert gpu.clock_event_reasons == ("sw_power_cap", "hw_slowdown", "hw_power_brake_slowdown", "sw_thermal_slowdown")
    assert gpu.processes == (
        GpuProcess(4321, "C", "python: train, step", 15),
        GpuProcess(4322, "C+G", None, None, unavailable={"memory_mib": "N/A"}),
    )
    assert gpu.unavailable == {"fan_speed_percent": "N/A"}


def test_a_lost_gpu_in_the_middle_and_a_warning_at_the_end() -> None:
    report = parse_nvidia_smi_q(OLD)
    assert [gpu.bus_id for gpu in report.gpus] == ["0000:05:00.0", "0000:84:00.0"]
    assert [lost.bus_id for lost in report.lost] == ["0000:06:00.0"]
    assert report.lost[0].text.startswith("Unable to determine the device handle")
    assert report.warnings == ("WARNING: infoROM is corrupted at gpu 0000:84:00.0",)


def test_refused_is_null_and_says_how() -> None:
    gpu = parse_nvidia_smi_q(OLD).gpus[1]
    assert gpu.unavailable == {
        "name": "ERR!",
        "serial": "[Unknown Error]",
        "remapped_correctable": "N/A",
        "remapped_uncorrectable": "N/A",
        "remap_pending": "N/A",
        "remap_failure": "N/A",
        **{f"remap_banks_{name}": "N/A" for name in ("max", "high", "partial", "low", "none")},
        "temperature_c": "[GPU requires reset]",
        "power_draw_w": "ERR!",
        "ecc_volatile_correctable": "Unknown Error",
        "clock_event_reasons": "N/A",
    }
    assert all(getattr(gpu, name) is None for name in gpu.unavailable)
    assert (gpu.ecc_volatile_uncorrectable, gpu.processes, gpu.memory_total_mib) == (0, (), None)


def test_mig_devices_sums_and_power_of_a_new_driver() -> None:
    gpu = parse_nvidia_smi_q(MIG).gpus[0]
    assert (gpu.bus_id, gpu.mig_mode, gpu.mig_mode_pending) == ("10000:C1:00.0", True, False)
    assert gpu.mig_devices == (
        MigDevice(0, 2, 0, 40448, 44, 60, 1),
        MigDevice(1, 3, 1, 20096, 25, 32, None, {"ecc_volatile_sram_uncorrectable": "N/A"}),
    )
    assert (gpu.ecc_volatile_correctable, gpu.ecc_volatile_uncorrectable) == (9, 22)
    assert (gpu.ecc_aggregate_correctable, gpu.ecc_aggregate_uncorrectable) == (288, 704)
    assert (gpu.ecc_volatile_sram_uncorrectable, gpu.ecc_aggregate_dram_correctable) == (6, 256)
    assert (gpu.ecc_sram_threshold_exceeded, gpu.tpc_repair_pending, gpu.channel_repair_pending) == (True, True, False)
    assert (gpu.power_draw_w, gpu.memory_power_draw_w, gpu.module_power_draw_w) == (70.72, 46.56, 900.0)
    assert (gpu.memory_total_mib, gpu.memory_used_mib, gpu.recovery_action) == (81559, 69, "Drain and Reset")
    assert (gpu.fabric_state, gpu.fabric_health, gpu.fabric_clique_id) == ("Completed", "Degraded", 3)
    assert gpu.processes == (GpuProcess(77, "C", None, 44, 2, 0, unavailable={"name": "[Insufficient Permissions]"}),)


@pytest.mark.parametrize(
    ("readings", "watt", "word"),
    [
        (("Average Power Draw : 1.50 W", "Instantaneous Power Draw : 2.50 W", "Power Draw : 3.50 W"), 1.5, None),
        (("Average Power Draw : N/A", "Instantaneous Power Draw : 2.50 W", "Power Draw : 3.50 W"), 2.5, None),
        (("Average Power Draw : N/A", "Instantaneous Power Draw : ERR!", "Power Draw : 3.50 W"), 3.5, None),
        (("Average Power Draw : N/A", "Instantaneous Power Draw : ERR!"), None, "N/A"),
    ],
)
def test_power_is_the_average_where_given(readings: tuple[str, ...], watt: float | None, word: str | None) -> None:
    lines = "".join(f"        {reading}\n" for reading in readings)
    gpu = parse_nvidia_smi_q(f"{SHORT}    GPU Power Readings\n{lines}    Module Power Readings\n").gpus[0]
    assert (gpu.power_draw_w, gpu.unavailable.get("power_draw_w")) == (watt, word)


@pytest.mark.parametrize(
    ("parts", "total", "word"),
    [
        ({"SRAM Correctable": "3", "DRAM Correctable": "4"}, 7, None),
        ({"SRAM Correctable": "N/A", "DRAM Correctable": "4"}, 4, None),
        ({"SRAM Correctable": "N/A", "DRAM Correctable": "N/A"}, None, "N/A"),
        ({"SRAM Correctable": "3", "DRAM Correctable": "Unknown Error"}, None, "Unknown Error"),
        ({"DRAM Uncorrectable": "4"}, None, None),
    ],
)
def test_a_sum_is_never_smaller_than_what_was_counted(
    parts: dict[str, str], total: int | None, word: str | None
) -> None:
    lines = "".join(f"            {name} : {value}\n" for name, value in parts.items())
    gpu = parse_nvidia_smi_q(f"{SHORT}    ECC Errors\n        Volatile\n{lines}").gpus[0]
    assert (gpu.ecc_volatile_correctable, gpu.unavailable.get("ecc_volatile_correctable")) == (total, word)


def test_output_that_ends_between_two_lines_is_read_as_far_as_it_goes() -> None:
    lines = OLD.splitlines(keepends=True)
    first = next(number for number, line in enumerate(lines) if line.startswith("GPU 0"))
    whole = parse_nvidia_smi_q(OLD).gpus[0]
    for end in range(first + 1, len(lines)):
        gpu = parse_nvidia_smi_q("".join(lines[:end])).gpus[0]
        for name in OLD_VALUES:
            assert getattr(gpu, name) in (None, getattr(whole, name)), (end, name)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "empty"),
        (" \n\t\n", "empty"),
        ("hello\n", "line 1: 'hello'"),
        ("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n", "couldn't communicate"),
        ("Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 1\n", "version mismatch"),
        ("No devices were found\n", "No devices were found"),
        ("bash: nvidia-smi: command not found\n", "command not found"),
        ("Unable to determine the device handle for GPU0000:25:00.0: Unknown Error\n", "GPU0000:25:00.0"),
        ("log\nAttached GPUs : 8\n", "no 'GPU <bus id>' follows"),
        (SHORT.replace("Attached GPUs                             : 1", "Attached GPUs : many"), "line 4: .*many"),
        (SHORT.replace("0f:00.0", "0f:0"), "line 5: .*no PCI address"),
        (SHORT.replace("81920 MiB", "81920 M"), "line 8: .*81920 M.*unit"),
        (SHORT.replace("81920 MiB", "8192O MiB"), "line 8"),
        (SHORT.replace("33 C", ""), "line 11.*missing"),
        (SHORT[: -len(" C\n")], "line 11.*unit"),
        (SHORT[: -len("p                  : 33 C\n")], "line 11.*cut"),
        (SHORT[: -len(" 33 C\n")], "line 11.*cut"),
        (SHORT + "    Persistence Mode : Perhaps\n", "line 12.*neither"),
    ],
)
def test_what_cannot_be_read_is_refused(text: str, told: str) -> None:
    with pytest.raises(ParseError, match=told):
        parse_nvidia_smi_q(text)


def test_hostile_text_neither_hangs_nor_harms() -> None:
    for text in (
        "GPU 00000000:0F:00.0\n    " + "x" * 2_000_000,
        "GPU 00000000:0F:00.0\n" + "".join(" " * (4 + depth) + "a\n" for depth in range(2000)),
        "GPU 00000000:0F:00.0\n    FB Memory Usage\n        Total : " + "9" * 500_000 + " MiB\n",
        " " * 2_000_000 + ":",
    ):
        try:
            parse_nvidia_smi_q(text)
        except ParseError as error:
            assert len(error.message) < 1000
