"""GPUs as a healthy DGX A100 reports them, for the tables of GPU checks."""

from __future__ import annotations

from typing import Any

from nodectl.facts.gpus import Gpu, Gpus

MODEL = "NVIDIA A100-SXM4-80GB"
HEALTHY: dict[str, Any] = {
    "vbios_version": "92.00.81.00.01",
    "memory_used_mib": 4,
    "persistence_mode": True,
    "display_active": False,
    "compute_mode": "Default",
    "mig_mode": False,
    "mig_mode_pending": False,
    "recovery_action": "None",
    "reset_required": False,
    "drain_and_reset_recommended": False,
    "ecc_mode_current": True,
    "ecc_mode_pending": True,
    "ecc_volatile_correctable": 2,
    "ecc_volatile_uncorrectable": 0,
    "ecc_aggregate_sram_correctable": 1,
    "ecc_aggregate_sram_uncorrectable": 0,
    "ecc_sram_threshold_exceeded": False,
    "retired_pages_single_bit": 0,
    "retired_pages_double_bit": 0,
    "retired_pages_pending": False,
    "remapped_correctable": 0,
    "remapped_uncorrectable": 1,
    "remap_pending": False,
    "remap_failure": False,
    "remap_banks_max": 640,
    "remap_banks_low": 0,
    "remap_banks_none": 0,
    "channel_repair_pending": False,
    "tpc_repair_pending": False,
    "unrepairable_memory": False,
    "pcie_gen_current": 4,
    "pcie_gen_max": 4,
    "pcie_gen_device_max": 4,
    "pcie_gen_host_max": 4,
    "pcie_width_current": 16,
    "pcie_width_max": 16,
    "pcie_replay_counter": 7,
    "temperature_c": 31,
    "temperature_slowdown_c": 89,
    "memory_temperature_c": 40,
    "memory_temperature_max_c": 95,
    "power_draw_w": 62.5,
    "power_limit_w": 400.0,
    "power_limit_default_w": 400.0,
    "sm_clock_mhz": 210,
    "graphics_clock_mhz": 210,
    "sm_clock_max_mhz": 1410,
    "graphics_clock_max_mhz": 1410,
    "applications_graphics_clock_mhz": 1410,
    "clock_event_reasons": ("idle",),
    "utilization_gpu_percent": 0,
    "fabric_state": "Completed",
    "fabric_status": "Success",
    "processes": (),
}


def gpu(index: int, **changes: Any) -> Gpu:
    """One healthy GPU but for the changes; a value that is refused: `refused={"field": "what nvidia-smi says"}`."""
    refused = changes.pop("refused", {})
    values = {**HEALTHY, "name": MODEL, "memory_total_mib": 81920, **dict.fromkeys(refused), **changes}
    values.setdefault("uuid", f"GPU-{index}")
    values.setdefault("serial", f"156000000000{index}")
    bus_id = values.pop("bus_id", f"0000:{16 * index + 7:02X}:00.0")
    return Gpu(index=index, bus_id=bus_id, unavailable=refused, **values)


def eight(*, lost: tuple[str, ...] = (), warnings: tuple[str, ...] = (), **changes: Any) -> dict[str, object]:
    """The fact of eight GPUs, the last with the changes."""
    devices = (*(gpu(index) for index in range(7)), gpu(7, **changes))
    return {"gpus": Gpus(8, devices, lost, "580.95.05", "13.0", warnings, "nvidia-smi-q")}


def all_with(**changes: Any) -> dict[str, object]:
    """The fact of eight GPUs with the same changes."""
    return {"gpus": Gpus(8, tuple(gpu(index, **changes) for index in range(8)), source="nvidia-smi-q")}


def count(number: int, **changes: Any) -> dict[str, object]:
    """The fact of as many GPUs."""
    return {"gpus": Gpus(number, tuple(gpu(index) for index in range(number)), source="nvidia-smi-q", **changes)}
