"""The paths of each field of `nvidia-smi -q`: the text's first, then the XML's, then those of older drivers."""

from __future__ import annotations

from typing import NamedTuple


class Field(NamedTuple):
    """A field's name, what kind of value it holds, where it may stand, and the sections around that."""

    name: str
    kind: str
    paths: tuple[str, ...]
    sections: tuple[str, ...]


def _field(name: str, kind: str, *paths: str) -> Field:
    parts = [path.split("/") for path in paths]
    sections = dict.fromkeys("/".join(each[:size]) for each in parts for size in range(len(each) - 1, 0, -1))
    return Field(name, kind, paths, tuple(sections))


_XML_GEN, _XML_WIDTH = "pci/pci_gpu_link_info/pcie_gen", "pci/pci_gpu_link_info/link_widths"
_GEN, _WIDTH = "pci/gpu_link_info/pcie_generation", "pci/gpu_link_info/link_width"
_POWER, _OLD_POWER, _CEILING = "gpu_power_readings", "power_readings", "gpu_power_readings/gpu_ceiling_power_limit"
_BANKS, _XML_BANKS = "remapped_rows/bank_remap_availability_histogram", "remapped_rows/row_remapper_histogram"

GPU = (
    _field("uuid", "text", "gpu_uuid", "uuid"),
    _field("name", "text", "product_name"),
    _field("serial", "text", "serial_number", "serial"),
    _field("product_architecture", "text", "product_architecture"),
    _field("brand", "text", "product_brand"),
    _field("minor_number", "count", "minor_number"),
    _field("vbios_version", "text", "vbios_version"),
    _field("part_number", "text", "gpu_part_number"),
    _field("board_part_number", "text", "board_part_number"),
    _field("board_id", "text", "board_id"),
    _field("module_id", "count", "platform_info/module_id", "module_id", "platformInfo/module_id", "gpu_module_id"),
    _field("inforom_version", "text", "inforom_version/image_version", "inforom_version/img_version"),
    _field("gsp_firmware", "text", "gsp_firmware_version"),
    _field("virtualization_mode", "text", "gpu_virtualization_mode/virtualization_mode"),
    _field("addressing_mode", "text", "addressing_mode"),
    _field("c2c_mode", "text", "gpu_c2c_mode", "c2c_mode"),
    _field("display_active", "flag", "display_active"),
    _field("persistence_mode", "flag", "persistence_mode"),
    _field("compute_mode", "text", "compute_mode"),
    _field("performance_state", "text", "performance_state"),
    _field("recovery_action", "text", "gpu_recovery_action"),
    _field("reset_required", "flag", "gpu_reset_status/reset_required"),
    _field("drain_and_reset_recommended", "flag", "gpu_reset_status/drain_and_reset_recommended"),
    _field("memory_total_mib", "mib", "fb_memory_usage/total", "memory_usage/total"),
    _field("memory_reserved_mib", "mib", "fb_memory_usage/reserved"),
    _field("memory_used_mib", "mib", "fb_memory_usage/used", "memory_usage/used"),
    _field("memory_free_mib", "mib", "fb_memory_usage/free", "memory_usage/free"),
    _field("bar1_total_mib", "mib", "bar1_memory_usage/total"),
    _field("bar1_used_mib", "mib", "bar1_memory_usage/used"),
    _field("mig_mode", "flag", "mig_mode/current", "mig_mode/current_mig"),
    _field("mig_mode_pending", "flag", "mig_mode/pending", "mig_mode/pending_mig"),
    _field("ecc_mode_current", "flag", "ecc_mode/current", "ecc_mode/current_ecc"),
    _field("ecc_mode_pending", "flag", "ecc_mode/pending", "ecc_mode/pending_ecc"),
    _field("ecc_sram_threshold_exceeded", "flag", "ecc_errors/aggregate/sram_threshold_exceeded"),
    _field("channel_repair_pending", "flag", "ecc_errors/channel_repair_pending"),
    _field("tpc_repair_pending", "flag", "ecc_errors/tpc_repair_pending"),
    _field("unrepairable_memory", "flag", "ecc_errors/unrepairable_memory"),
    _field(
        *("retired_pages_single_bit", "count", "retired_pages/single_bit_ecc"),
        "retired_pages/multiple_single_bit_retirement/retired_count",
    ),
    _field(
        *("retired_pages_double_bit", "count", "retired_pages/double_bit_ecc"),
        "retired_pages/double_bit_retirement/retired_count",
    ),
    _field("remapped_correctable", "count", "remapped_rows/correctable_error", "remapped_rows/remapped_row_corr"),
    _field("remapped_uncorrectable", "count", "remapped_rows/uncorrectable_error", "remapped_rows/remapped_row_unc"),
    _field("remap_pending", "flag", "remapped_rows/pending", "remapped_rows/remapped_row_pending"),
    _field(
        *("remap_failure", "flag", "remapped_rows/remapping_failure_occurred", "remapped_rows/remapped_row_failure"),
    ),
    *(
        _field(f"remap_banks_{name}", "banks", f"{_BANKS}/{name}", f"{_XML_BANKS}/row_remapper_histogram_{name}")
        for name in ("max", "high", "partial", "low", "none")
    ),
    _field("pcie_gen_current", "count", f"{_GEN}/current", f"{_XML_GEN}/current_link_gen"),
    _field("pcie_gen_max", "count", f"{_GEN}/max", f"{_XML_GEN}/max_link_gen"),
    _field("pcie_gen_device_max", "count", f"{_GEN}/device_max", f"{_XML_GEN}/max_device_link_gen"),
    _field("pcie_gen_host_max", "count", f"{_GEN}/host_max", f"{_XML_GEN}/max_host_link_gen"),
    _field("pcie_width_current", "width", f"{_WIDTH}/current", f"{_XML_WIDTH}/current_link_width"),
    _field("pcie_width_max", "width", f"{_WIDTH}/max", f"{_XML_WIDTH}/max_link_width"),
    _field("pcie_replay_counter", "count", "pci/replays_since_reset", "pci/replay_counter"),
    _field("pcie_replay_rollovers", "count", "pci/replay_number_rollovers", "pci/replay_rollover_counter"),
    _field("pcie_tx_kb_s", "kb_s", "pci/tx_throughput", "pci/tx_util"),
    _field("pcie_rx_kb_s", "kb_s", "pci/rx_throughput", "pci/rx_util"),
    _field("fan_speed_percent", "percent", "fan_speed"),
    _field("temperature_c", "celsius", "temperature/gpu_current_temp", "temperature/gpu_temp", "temperature/gpu"),
    _field(
        *("temperature_limit_margin_c", "celsius", "temperature/gpu_t_limit_temp"),
        *("temperature/gpu_current_t_limit_temp", "temperature/gpu_temp_tlimit"),
    ),
    _field("temperature_shutdown_c", "celsius", "temperature/gpu_shutdown_temp", "temperature/gpu_temp_max_threshold"),
    _field("temperature_slowdown_c", "celsius", "temperature/gpu_slowdown_temp", "temperature/gpu_temp_slow_threshold"),
    _field(
        *("temperature_max_operating_c", "celsius", "temperature/gpu_max_operating_temp"),
        "temperature/gpu_temp_max_gpu_threshold",
    ),
    _field(
        *("temperature_target_c", "celsius", "temperature/gpu_target_temperature"),
        "temperature/gpu_target_temperature_specification",
    ),
    _field("memory_temperature_c", "celsius", "temperature/memory_current_temp", "temperature/memory_temp"),
    _field(
        *("memory_temperature_max_c", "celsius", "temperature/memory_max_operating_temp"),
        "temperature/gpu_temp_max_mem_threshold",
    ),
    _field(
        *("power_draw_w", "watt", f"{_POWER}/average_power_draw", f"{_POWER}/instantaneous_power_draw"),
        *(f"{_POWER}/instant_power_draw", f"{_POWER}/power_draw"),
        *(f"{_OLD_POWER}/average_power_draw", f"{_OLD_POWER}/instantaneous_power_draw"),
        *(f"{_OLD_POWER}/instant_power_draw", f"{_OLD_POWER}/power_draw"),
    ),
    _field(
        *("power_limit_w", "watt", f"{_POWER}/current_power_limit", f"{_CEILING}/current_power_limit"),
        *(f"{_POWER}/power_limit", f"{_OLD_POWER}/current_power_limit", f"{_OLD_POWER}/power_limit"),
    ),
    *(
        _field(
            *(f"power_limit_{name}_w", "watt", f"{_POWER}/{name}_power_limit", f"{_CEILING}/{name}_power_limit"),
            f"{_OLD_POWER}/{name}_power_limit",
        )
        for name in ("default", "enforced", "min", "max")
    ),
    *(
        _field(
            *(f"{name}_power_draw_w", "watt", f"{section}/average_power_draw", f"{section}/instantaneous_power_draw"),
            *(f"{section}/instant_power_draw", f"{section}/power_draw"),
        )
        for name, section in (("memory", "gpu_memory_power_readings"), ("module", "module_power_readings"))
    ),
    *(
        _field(f"{name}_clock_mhz", "mhz", f"clocks/{name}", f"clocks/{xml}_clock")
        for name, xml in (("graphics", "graphics"), ("sm", "sm"), ("memory", "mem"), ("video", "video"))
    ),
    *(
        _field(
            f"applications_{name}_clock_mhz", "mhz", f"applications_clocks/{name}", f"applications_clocks/{xml}_clock"
        )
        for name, xml in (("graphics", "graphics"), ("memory", "mem"))
    ),
    *(
        _field(f"{name}_clock_max_mhz", "mhz", f"max_clocks/{name}", f"max_clocks/{xml}_clock")
        for name, xml in (("graphics", "graphics"), ("sm", "sm"), ("memory", "mem"))
    ),
    _field("utilization_gpu_percent", "percent", "utilization/gpu", "utilization/gpu_util"),
    _field("utilization_memory_percent", "percent", "utilization/memory", "utilization/memory_util"),
    _field("fabric_state", "text", "fabric/state"),
    _field("fabric_status", "text", "fabric/status"),
    _field("fabric_health", "text", "fabric/health/summary"),
    _field("fabric_clique_id", "count", "fabric/cliqueid", "fabric/cliqueId"),
    _field("fabric_cluster_uuid", "text", "fabric/clusteruuid", "fabric/clusterUuid"),
)
MIG = (
    _field("index", "count", "index"),
    _field("gpu_instance_id", "count", "gpu_instance_id"),
    _field("compute_instance_id", "count", "compute_instance_id"),
    _field("memory_total_mib", "mib", "fb_memory_usage/total"),
    _field("memory_used_mib", "mib", "fb_memory_usage/used"),
    _field("multiprocessors", "count", "device_attributes/shared/multiprocessor_count"),
    _field(
        *("ecc_volatile_sram_uncorrectable", "count", "ecc_errors/volatile/sram_uncorrectable"),
        "ecc_error_count/volatile_count/sram_uncorrectable",
    ),
)
PROCESS = (
    _field("pid", "count", "process_id", "pid"),
    _field("type", "text", "type"),
    _field("name", "text", "name", "process_name"),
    _field("memory_mib", "mib", "used_gpu_memory", "used_memory"),
    _field("gpu_instance_id", "count", "gpu_instance_id"),
    _field("compute_instance_id", "count", "compute_instance_id"),
)


def _ecc(span: str, memories: tuple[str, ...], kind: str) -> tuple[tuple[str, ...], ...]:
    """Paths to add up, newest form first: split over SRAM and DRAM, else the total of all memories."""
    tails = ("", "_parity", "_sec_ded", "_secded")
    split = tuple(f"ecc_errors/{span}/{memory}_{kind}{tail}" for memory in memories for tail in tails)
    bits = "single_bit" if kind == "correctable" else "double_bit"
    if len(memories) > 1:
        return split, (f"ecc_errors/{span}/{bits}/total",)
    return (split, (f"ecc_errors/{span}/{bits}/device_memory",)) if memories == ("dram",) else (split,)


SUMS = {
    f"ecc_{span}_{part}{kind}": _ecc(span, memories, kind)
    for span in ("volatile", "aggregate")
    for part, memories in (("", ("sram", "dram")), ("sram_", ("sram",)), ("dram_", ("dram",)))
    for kind in ("correctable", "uncorrectable")
}
# NVIDIA's names in text and XML: ours
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
