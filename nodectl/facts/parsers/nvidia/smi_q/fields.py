"""The fields of `nvidia-smi -q`: each with its name, type and unit, and its places in text and XML, of all drivers."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from typing import Any, NamedTuple

from nodectl.facts.parsers.nvidia.words import LostGpu

# reads a value, or raises ValueError with the reason
Kind = Callable[[str], str | int | float | bool]
_FLAGS = {
    **dict.fromkeys(("enabled", "yes", "active", "on", "true"), True),
    **dict.fromkeys(("disabled", "no", "not active", "off", "false"), False),
}


def _flag(text: str) -> bool:
    if text.lower() not in _FLAGS:
        raise ValueError("neither Enabled nor Disabled, Yes nor No")
    return _FLAGS[text.lower()]


def _whole(text: str) -> int:
    return int(float(text)) if "." in text else int(text)


def _number(unit: str, convert: Callable[[str], float] = _whole) -> Kind:
    pattern = re.compile(rf"(-?[0-9]{{1,18}}(?:\.[0-9]{{1,6}})?) ?{unit}")

    def number(text: str) -> int | float:
        match = pattern.fullmatch(text)
        if match is None:
            raise ValueError(f"no number{' with its unit' if unit else ''}")
        return convert(match[1])

    return number


TEXT, FLAG = (lambda text: text), _flag
COUNT, MIB, CELSIUS, WATT, MHZ = _number(""), _number("(?:MiB|MB)"), _number("C"), _number("W", float), _number("MHz")
PERCENT, KB_S, US, WIDTH, BANKS = _number("%"), _number("KB/s"), _number("us"), _number("x"), _number(r"bank\(s\)")


class Place(NamedTuple):
    """Paths where a field may stand: the first with a value counts; `sections` lie around them, the inner first."""

    kind: Kind
    paths: tuple[str, ...]
    sections: tuple[str, ...]


def _at(kind: Kind, *paths: str) -> Any:
    """Return a field at these paths, the first that is printed counts; `section/a|b` are two of them."""
    spelt = tuple(
        f"{section}{slash}{name}"
        for section, slash, names in (path.rpartition("/") for path in paths)
        for name in names.split("|")
    )
    parts = [path.split("/") for path in spelt]
    sections = dict.fromkeys("/".join(part[:size]) for part in parts for size in range(len(part) - 1, 0, -1))
    return field(default=None, metadata={"place": Place(kind, spelt, tuple(sections))})


def _limit(name: str) -> Any:
    path = f"{name}_power_limit"
    return _at(WATT, f"gpu_power_readings/{path}", f"{_CEILING}/{path}", f"power_readings/{path}")


def _summed(span: str, memories: tuple[str, ...], kind: str) -> Any:
    """Return a sum over paths, newest form first: split over SRAM and DRAM, else the total of all memories."""
    tails = ("", "_parity", "_sec_ded", "_secded")
    split = tuple(f"ecc_errors/{span}/{memory}_{kind}{tail}" for memory in memories for tail in tails)
    bits = "single_bit" if kind == "correctable" else "double_bit"
    total = {_ALL: "total", _DRAM: "device_memory"}.get(memories)
    groups = (split, (f"ecc_errors/{span}/{bits}/{total}",)) if total else (split,)
    return field(default=None, metadata={"sum": groups})


_XML_GEN, _XML_WIDTH = "pci/pci_gpu_link_info/pcie_gen", "pci/pci_gpu_link_info/link_widths"
_GEN, _WIDTH = "pci/gpu_link_info/pcie_generation", "pci/gpu_link_info/link_width"
_CEILING = "gpu_power_readings/gpu_ceiling_power_limit"
_DRAWN = "average_power_draw|instantaneous_power_draw|instant_power_draw|power_draw"
_BANKS = "remapped_rows/bank_remap_availability_histogram"
_XML_BANKS = "remapped_rows/row_remapper_histogram/row_remapper_histogram"
_SRAM, _DRAM, _ALL = ("sram",), ("dram",), ("sram", "dram")


@dataclass(frozen=True, slots=True)
class GpuProcess:
    """A process that holds memory of the GPU: `type` is C (compute), G (graphics), C+G or M+C."""

    pid: int = _at(COUNT, "process_id|pid")
    type: str | None = _at(TEXT, "type")
    name: str | None = _at(TEXT, "name|process_name")
    memory_mib: int | None = _at(MIB, "used_gpu_memory|used_memory")
    gpu_instance_id: int | None = _at(COUNT, "gpu_instance_id")
    compute_instance_id: int | None = _at(COUNT, "compute_instance_id")
    unavailable: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class GpuStatus:
    """One GPU; None where nvidia-smi gives no value, or refuses it (then `unavailable` holds its word for that).

    A sum that is in `unavailable` too is a lower bound: a part of it was refused.
    """

    bus_id: str | None = None
    uuid: str | None = _at(TEXT, "gpu_uuid|uuid")
    name: str | None = _at(TEXT, "product_name")
    serial: str | None = _at(TEXT, "serial_number|serial")
    product_architecture: str | None = _at(TEXT, "product_architecture")
    brand: str | None = _at(TEXT, "product_brand")
    minor_number: int | None = _at(COUNT, "minor_number")
    vbios_version: str | None = _at(TEXT, "vbios_version")
    part_number: str | None = _at(TEXT, "gpu_part_number")
    board_part_number: str | None = _at(TEXT, "board_part_number")
    board_id: str | None = _at(TEXT, "board_id")
    module_id: int | None = _at(
        COUNT, "platform_info/module_id", "module_id", "platformInfo/module_id", "gpu_module_id"
    )
    inforom_version: str | None = _at(TEXT, "inforom_version/image_version|img_version")
    gsp_firmware: str | None = _at(TEXT, "gsp_firmware_version")
    virtualization_mode: str | None = _at(TEXT, "gpu_virtualization_mode/virtualization_mode")
    addressing_mode: str | None = _at(TEXT, "addressing_mode")
    display_active: bool | None = _at(FLAG, "display_active")
    persistence_mode: bool | None = _at(FLAG, "persistence_mode")
    compute_mode: str | None = _at(TEXT, "compute_mode")
    performance_state: str | None = _at(TEXT, "performance_state")
    recovery_action: str | None = _at(TEXT, "gpu_recovery_action")
    reset_required: bool | None = _at(FLAG, "gpu_reset_status/reset_required")
    drain_and_reset_recommended: bool | None = _at(FLAG, "gpu_reset_status/drain_and_reset_recommended")
    memory_total_mib: int | None = _at(MIB, "fb_memory_usage/total", "memory_usage/total")
    memory_reserved_mib: int | None = _at(MIB, "fb_memory_usage/reserved")
    memory_used_mib: int | None = _at(MIB, "fb_memory_usage/used", "memory_usage/used")
    bar1_total_mib: int | None = _at(MIB, "bar1_memory_usage/total")
    bar1_used_mib: int | None = _at(MIB, "bar1_memory_usage/used")
    mig_mode: bool | None = _at(FLAG, "mig_mode/current|current_mig")
    mig_mode_pending: bool | None = _at(FLAG, "mig_mode/pending|pending_mig")
    ecc_mode_current: bool | None = _at(FLAG, "ecc_mode/current|current_ecc")
    ecc_mode_pending: bool | None = _at(FLAG, "ecc_mode/pending|pending_ecc")
    ecc_volatile_correctable: int | None = _summed("volatile", _ALL, "correctable")
    ecc_volatile_uncorrectable: int | None = _summed("volatile", _ALL, "uncorrectable")
    ecc_aggregate_correctable: int | None = _summed("aggregate", _ALL, "correctable")
    ecc_aggregate_uncorrectable: int | None = _summed("aggregate", _ALL, "uncorrectable")
    ecc_volatile_sram_correctable: int | None = _summed("volatile", _SRAM, "correctable")
    ecc_volatile_sram_uncorrectable: int | None = _summed("volatile", _SRAM, "uncorrectable")
    ecc_volatile_dram_correctable: int | None = _summed("volatile", _DRAM, "correctable")
    ecc_volatile_dram_uncorrectable: int | None = _summed("volatile", _DRAM, "uncorrectable")
    ecc_aggregate_sram_correctable: int | None = _summed("aggregate", _SRAM, "correctable")
    ecc_aggregate_sram_uncorrectable: int | None = _summed("aggregate", _SRAM, "uncorrectable")
    ecc_aggregate_dram_correctable: int | None = _summed("aggregate", _DRAM, "correctable")
    ecc_aggregate_dram_uncorrectable: int | None = _summed("aggregate", _DRAM, "uncorrectable")
    ecc_sram_threshold_exceeded: bool | None = _at(FLAG, "ecc_errors/aggregate/sram_threshold_exceeded")
    channel_repair_pending: bool | None = _at(FLAG, "ecc_errors/channel_repair_pending")
    tpc_repair_pending: bool | None = _at(FLAG, "ecc_errors/tpc_repair_pending")
    unrepairable_memory: bool | None = _at(FLAG, "ecc_errors/unrepairable_memory")
    retired_pages_single_bit: int | None = _at(
        COUNT, "retired_pages/single_bit_ecc", "retired_pages/multiple_single_bit_retirement/retired_count"
    )
    retired_pages_double_bit: int | None = _at(
        COUNT, "retired_pages/double_bit_ecc", "retired_pages/double_bit_retirement/retired_count"
    )
    retired_pages_pending: bool | None = None
    remapped_correctable: int | None = _at(COUNT, "remapped_rows/correctable_error|remapped_row_corr")
    remapped_uncorrectable: int | None = _at(COUNT, "remapped_rows/uncorrectable_error|remapped_row_unc")
    remap_pending: bool | None = _at(FLAG, "remapped_rows/pending|remapped_row_pending")
    remap_failure: bool | None = _at(FLAG, "remapped_rows/remapping_failure_occurred|remapped_row_failure")
    remap_banks_max: int | None = _at(BANKS, f"{_BANKS}/max", f"{_XML_BANKS}_max")
    remap_banks_high: int | None = _at(BANKS, f"{_BANKS}/high", f"{_XML_BANKS}_high")
    remap_banks_partial: int | None = _at(BANKS, f"{_BANKS}/partial", f"{_XML_BANKS}_partial")
    remap_banks_low: int | None = _at(BANKS, f"{_BANKS}/low", f"{_XML_BANKS}_low")
    remap_banks_none: int | None = _at(BANKS, f"{_BANKS}/none", f"{_XML_BANKS}_none")
    pcie_gen_current: int | None = _at(COUNT, f"{_GEN}/current", f"{_XML_GEN}/current_link_gen")
    pcie_gen_max: int | None = _at(COUNT, f"{_GEN}/max", f"{_XML_GEN}/max_link_gen")
    pcie_gen_device_max: int | None = _at(COUNT, f"{_GEN}/device_max", f"{_XML_GEN}/max_device_link_gen")
    pcie_gen_host_max: int | None = _at(COUNT, f"{_GEN}/host_max", f"{_XML_GEN}/max_host_link_gen")
    pcie_width_current: int | None = _at(WIDTH, f"{_WIDTH}/current", f"{_XML_WIDTH}/current_link_width")
    pcie_width_max: int | None = _at(WIDTH, f"{_WIDTH}/max", f"{_XML_WIDTH}/max_link_width")
    pcie_replay_counter: int | None = _at(COUNT, "pci/replays_since_reset|replay_counter")
    pcie_replay_rollovers: int | None = _at(COUNT, "pci/replay_number_rollovers|replay_rollover_counter")
    pcie_tx_kb_s: int | None = _at(KB_S, "pci/tx_throughput|tx_util")
    pcie_rx_kb_s: int | None = _at(KB_S, "pci/rx_throughput|rx_util")
    fan_speed_percent: int | None = _at(PERCENT, "fan_speed")
    temperature_c: int | None = _at(CELSIUS, "temperature/gpu_current_temp|gpu_temp|gpu")
    temperature_limit_margin_c: int | None = _at(
        CELSIUS, "temperature/gpu_t_limit_temp|gpu_current_t_limit_temp|gpu_temp_tlimit"
    )
    temperature_slowdown_margin_c: int | None = _at(
        CELSIUS, "temperature/gpu_slowdown_t_limit_temp|gpu_temp_slow_tlimit_threshold"
    )
    temperature_shutdown_margin_c: int | None = _at(
        CELSIUS, "temperature/gpu_shutdown_t_limit_temp|gpu_temp_max_tlimit_threshold"
    )
    temperature_max_operating_margin_c: int | None = _at(
        CELSIUS, "temperature/gpu_max_operating_t_limit_temp|gpu_temp_max_gpu_tlimit_threshold"
    )
    temperature_shutdown_c: int | None = _at(CELSIUS, "temperature/gpu_shutdown_temp|gpu_temp_max_threshold")
    temperature_slowdown_c: int | None = _at(CELSIUS, "temperature/gpu_slowdown_temp|gpu_temp_slow_threshold")
    temperature_max_operating_c: int | None = _at(
        CELSIUS, "temperature/gpu_max_operating_temp|gpu_temp_max_gpu_threshold"
    )
    temperature_target_c: int | None = _at(
        CELSIUS, "temperature/gpu_target_temperature|gpu_target_temperature_specification"
    )
    memory_temperature_c: int | None = _at(CELSIUS, "temperature/memory_current_temp|memory_temp")
    memory_temperature_max_c: int | None = _at(
        CELSIUS, "temperature/memory_max_operating_temp|gpu_temp_max_mem_threshold"
    )
    power_draw_w: float | None = _at(WATT, f"gpu_power_readings/{_DRAWN}", f"power_readings/{_DRAWN}")
    power_limit_w: float | None = _at(
        WATT,
        "gpu_power_readings/current_power_limit",
        f"{_CEILING}/current_power_limit",
        "gpu_power_readings/power_limit",
        "power_readings/current_power_limit|power_limit",
    )
    power_limit_default_w: float | None = _limit("default")
    power_limit_min_w: float | None = _limit("min")
    power_limit_max_w: float | None = _limit("max")
    graphics_clock_mhz: int | None = _at(MHZ, "clocks/graphics|graphics_clock")
    sm_clock_mhz: int | None = _at(MHZ, "clocks/sm|sm_clock")
    memory_clock_mhz: int | None = _at(MHZ, "clocks/memory|mem_clock")
    video_clock_mhz: int | None = _at(MHZ, "clocks/video|video_clock")
    applications_graphics_clock_mhz: int | None = _at(MHZ, "applications_clocks/graphics|graphics_clock")
    applications_memory_clock_mhz: int | None = _at(MHZ, "applications_clocks/memory|mem_clock")
    graphics_clock_max_mhz: int | None = _at(MHZ, "max_clocks/graphics|graphics_clock")
    sm_clock_max_mhz: int | None = _at(MHZ, "max_clocks/sm|sm_clock")
    memory_clock_max_mhz: int | None = _at(MHZ, "max_clocks/memory|mem_clock")
    clock_event_reasons: tuple[str, ...] | None = None
    clock_event_counters_us: Mapping[str, int] = field(default_factory=dict)
    utilization_gpu_percent: int | None = _at(PERCENT, "utilization/gpu|gpu_util")
    utilization_memory_percent: int | None = _at(PERCENT, "utilization/memory|memory_util")
    fabric_state: str | None = _at(TEXT, "fabric/state")
    fabric_status: str | None = _at(TEXT, "fabric/status")
    fabric_health: str | None = _at(TEXT, "fabric/health/summary")
    fabric_bandwidth: str | None = _at(TEXT, "fabric/health/bandwidth")
    fabric_route_recovery: str | None = _at(TEXT, "fabric/health/route_recovery_in_progress")
    fabric_route_unhealthy: str | None = _at(TEXT, "fabric/health/route_unhealthy")
    fabric_access_timeout: str | None = _at(TEXT, "fabric/health/access_timeout_recovery")
    fabric_configuration: str | None = _at(TEXT, "fabric/health/incorrect_configuration")
    fabric_clique_id: int | None = _at(COUNT, "fabric/cliqueid|cliqueId")
    fabric_cluster_uuid: str | None = _at(TEXT, "fabric/clusteruuid|clusterUuid")
    processes: tuple[GpuProcess, ...] | None = None
    unavailable: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NvidiaSmiQ:
    """The report: `gpus` may be fewer than `attached_gpus` where one is lost, or the output is cut.

    `is_cut`: the last of `gpus` ends before its siblings do, or, alone, before its processes.
    """

    driver_version: str | None
    cuda_version: str | None
    attached_gpus: int | None
    gpus: tuple[GpuStatus, ...]
    lost: tuple[LostGpu, ...] = ()
    warnings: tuple[str, ...] = ()
    timestamp: str | None = None
    unavailable: Mapping[str, str] = field(default_factory=dict)
    is_cut: bool = False


@cache
def places_of(kind: Any) -> dict[str, Place]:
    """Return the place of each field of the dataclass `kind` that stands somewhere, by its name."""
    return {item.name: item.metadata["place"] for item in fields(kind) if "place" in item.metadata}


@cache
def sums() -> dict[str, tuple[tuple[str, ...], ...]]:
    """Return the groups of paths of each sum by its name: counts since the driver's load, then those of all time."""
    by_name = {item.name: item.metadata["sum"] for item in fields(GpuStatus) if "sum" in item.metadata}
    return {name: by_name[name] for name in sorted(by_name, key=lambda name: "volatile" not in name)}


# reasons for a lower clock: NVIDIA's names in text and XML, and ours
REASONS = {
    **{name: name for name in ("idle", "applications_clocks_setting", "sw_power_cap", "hw_slowdown")},
    **{name: name for name in ("hw_thermal_slowdown", "hw_power_brake_slowdown", "sync_boost", "sw_thermal_slowdown")},
    "display_clocks_setting": "display_clocks_setting",
    "display_clock_setting": "display_clocks_setting",
    "gpu_idle": "idle",
    "user_defined_clocks": "applications_clocks_setting",
}
_COUNTERS, _XML_COUNTERS = "clocks_event_reasons_counters", "clocks_event_reasons_counters_"
COUNTERS = {
    name: tuple(f"{_COUNTERS}/{path}" for path in (text, f"{_XML_COUNTERS}{xml}"))
    for name, text, xml in (
        ("sw_power_cap", "sw_power_capping", "sw_power_cap"),
        ("sync_boost", "sync_boost", "sync_boost"),
        ("sw_thermal_slowdown", "sw_thermal_slowdown", "sw_therm_slowdown"),
        ("hw_thermal_slowdown", "hw_thermal_slowdown", "hw_therm_slowdown"),
        ("hw_power_brake_slowdown", "hw_power_braking", "hw_power_brake"),
    )
}
