"""Reads `nvidia-smi -q`, as text or as XML (`-x`), whole or in part (`-d`), of drivers from 3xx on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from nodectl.parsers.nvidia.words import LostGpu
from nodectl.parsers.text import lines_of, untagged

TOOL = "nvidia-smi-q"


@dataclass(frozen=True, slots=True)
class GpuProcess:
    """A process that holds memory of the GPU: `type` is C (compute), G (graphics) or both."""

    pid: int
    type: str | None
    name: str | None
    memory_mib: int | None
    gpu_instance_id: int | None = None
    compute_instance_id: int | None = None
    unavailable: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class MigDevice:
    """A slice of a GPU, by its place in the GPU's list."""

    index: int | None
    gpu_instance_id: int | None
    compute_instance_id: int | None
    memory_total_mib: int | None
    memory_used_mib: int | None
    multiprocessors: int | None
    ecc_volatile_sram_uncorrectable: int | None
    unavailable: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class GpuStatus:
    """One GPU; None where nvidia-smi gives no value, or refuses it (then `unavailable` holds its word for that)."""

    bus_id: str
    uuid: str | None
    name: str | None
    serial: str | None
    product_architecture: str | None
    brand: str | None
    minor_number: int | None
    vbios_version: str | None
    part_number: str | None
    board_part_number: str | None
    board_id: str | None
    module_id: int | None
    inforom_version: str | None
    gsp_firmware: str | None
    virtualization_mode: str | None
    addressing_mode: str | None
    c2c_mode: str | None
    display_active: bool | None
    persistence_mode: bool | None
    compute_mode: str | None
    performance_state: str | None
    recovery_action: str | None
    reset_required: bool | None
    drain_and_reset_recommended: bool | None
    memory_total_mib: int | None
    memory_reserved_mib: int | None
    memory_used_mib: int | None
    memory_free_mib: int | None
    bar1_total_mib: int | None
    bar1_used_mib: int | None
    mig_mode: bool | None
    mig_mode_pending: bool | None
    mig_devices: tuple[MigDevice, ...] | None
    ecc_mode_current: bool | None
    ecc_mode_pending: bool | None
    ecc_volatile_correctable: int | None
    ecc_volatile_uncorrectable: int | None
    ecc_aggregate_correctable: int | None
    ecc_aggregate_uncorrectable: int | None
    ecc_volatile_sram_correctable: int | None
    ecc_volatile_sram_uncorrectable: int | None
    ecc_volatile_dram_correctable: int | None
    ecc_volatile_dram_uncorrectable: int | None
    ecc_aggregate_sram_correctable: int | None
    ecc_aggregate_sram_uncorrectable: int | None
    ecc_aggregate_dram_correctable: int | None
    ecc_aggregate_dram_uncorrectable: int | None
    ecc_sram_threshold_exceeded: bool | None
    channel_repair_pending: bool | None
    tpc_repair_pending: bool | None
    unrepairable_memory: bool | None
    retired_pages_single_bit: int | None
    retired_pages_double_bit: int | None
    retired_pages_pending: bool | None
    remapped_correctable: int | None
    remapped_uncorrectable: int | None
    remap_pending: bool | None
    remap_failure: bool | None
    remap_banks_max: int | None
    remap_banks_high: int | None
    remap_banks_partial: int | None
    remap_banks_low: int | None
    remap_banks_none: int | None
    pcie_gen_current: int | None
    pcie_gen_max: int | None
    pcie_gen_device_max: int | None
    pcie_gen_host_max: int | None
    pcie_width_current: int | None
    pcie_width_max: int | None
    pcie_replay_counter: int | None
    pcie_replay_rollovers: int | None
    pcie_tx_kb_s: int | None
    pcie_rx_kb_s: int | None
    fan_speed_percent: int | None
    temperature_c: int | None
    temperature_limit_margin_c: int | None
    temperature_shutdown_c: int | None
    temperature_slowdown_c: int | None
    temperature_max_operating_c: int | None
    temperature_target_c: int | None
    memory_temperature_c: int | None
    memory_temperature_max_c: int | None
    power_draw_w: float | None
    power_limit_w: float | None
    power_limit_default_w: float | None
    power_limit_enforced_w: float | None
    power_limit_min_w: float | None
    power_limit_max_w: float | None
    memory_power_draw_w: float | None
    module_power_draw_w: float | None
    graphics_clock_mhz: int | None
    sm_clock_mhz: int | None
    memory_clock_mhz: int | None
    video_clock_mhz: int | None
    applications_graphics_clock_mhz: int | None
    applications_memory_clock_mhz: int | None
    graphics_clock_max_mhz: int | None
    sm_clock_max_mhz: int | None
    memory_clock_max_mhz: int | None
    clock_event_reasons: tuple[str, ...] | None
    clock_event_reasons_other: tuple[str, ...]
    clock_event_counters_us: Mapping[str, int]
    utilization_gpu_percent: int | None
    utilization_memory_percent: int | None
    fabric_state: str | None
    fabric_status: str | None
    fabric_health: str | None
    fabric_clique_id: int | None
    fabric_cluster_uuid: str | None
    processes: tuple[GpuProcess, ...] | None
    unavailable: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NvidiaSmiQ:
    """The report: `gpus` may be fewer than `attached_gpus` where one is lost, or the output is cut."""

    driver_version: str | None
    cuda_version: str | None
    attached_gpus: int | None
    gpus: tuple[GpuStatus, ...]
    lost: tuple[LostGpu, ...] = ()
    warnings: tuple[str, ...] = ()
    timestamp: str | None = None
    unavailable: Mapping[str, str] = field(default_factory=dict)


def parse_nvidia_smi_q(text: str) -> NvidiaSmiQ:
    """The report; ParseError for a garbled value, or where nvidia-smi says why there is no report."""
    from nodectl.parsers.nvidia.smi_q_fields import report_of

    lines = lines_of(text, TOOL)
    if any("<nvidia_smi_log" in line.text for line in lines):
        from nodectl.parsers.nvidia.smi_q_xml import read_xml

        return report_of(read_xml(lines), lines)
    lines = list(untagged(lines))
    from nodectl.parsers.nvidia.smi_q_text import read_text

    return report_of(read_text(lines), lines)
