"""The GPUs of a host, as the loaded driver tells of them; None where it gives no value."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class GpuProcess:
    """A process that holds memory of a GPU; `type` is C, G, C+G or M+C."""

    pid: int
    type: str | None = None
    name: str | None = None
    memory_mib: int | None = None


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU; a value that the driver refuses is None, its text in `unavailable`.

    The first fields are known from any way of asking, the others from `nvidia-smi -q`.
    """

    index: int | None
    name: str | None
    uuid: str | None
    bus_id: str | None
    memory_total_mib: int | None
    unavailable: Mapping[str, str] = field(default_factory=dict)
    serial: str | None = None
    vbios_version: str | None = None
    part_number: str | None = None
    board_id: str | None = None
    product_architecture: str | None = None
    minor_number: int | None = None
    module_id: int | None = None
    gsp_firmware: str | None = None
    inforom_version: str | None = None
    virtualization_mode: str | None = None
    memory_used_mib: int | None = None
    bar1_total_mib: int | None = None
    persistence_mode: bool | None = None
    display_active: bool | None = None
    compute_mode: str | None = None
    performance_state: str | None = None
    recovery_action: str | None = None
    reset_required: bool | None = None
    drain_and_reset_recommended: bool | None = None
    mig_mode: bool | None = None
    mig_mode_pending: bool | None = None
    ecc_mode_current: bool | None = None
    ecc_mode_pending: bool | None = None
    ecc_volatile_correctable: int | None = None
    ecc_volatile_uncorrectable: int | None = None
    ecc_aggregate_correctable: int | None = None
    ecc_aggregate_uncorrectable: int | None = None
    ecc_aggregate_sram_correctable: int | None = None
    ecc_aggregate_sram_uncorrectable: int | None = None
    ecc_aggregate_dram_correctable: int | None = None
    ecc_sram_threshold_exceeded: bool | None = None
    unrepairable_memory: bool | None = None
    channel_repair_pending: bool | None = None
    tpc_repair_pending: bool | None = None
    retired_pages_single_bit: int | None = None
    retired_pages_double_bit: int | None = None
    retired_pages_pending: bool | None = None
    remapped_correctable: int | None = None
    remapped_uncorrectable: int | None = None
    remap_pending: bool | None = None
    remap_failure: bool | None = None
    remap_banks_max: int | None = None
    remap_banks_high: int | None = None
    remap_banks_partial: int | None = None
    remap_banks_low: int | None = None
    remap_banks_none: int | None = None
    pcie_gen_current: int | None = None
    pcie_gen_max: int | None = None
    pcie_gen_device_max: int | None = None
    pcie_gen_host_max: int | None = None
    pcie_width_current: int | None = None
    pcie_width_max: int | None = None
    pcie_replay_counter: int | None = None
    temperature_c: int | None = None
    temperature_limit_margin_c: int | None = None
    temperature_shutdown_c: int | None = None
    temperature_slowdown_c: int | None = None
    temperature_max_operating_c: int | None = None
    memory_temperature_c: int | None = None
    memory_temperature_max_c: int | None = None
    power_draw_w: float | None = None
    power_limit_w: float | None = None
    power_limit_default_w: float | None = None
    power_limit_max_w: float | None = None
    sm_clock_mhz: int | None = None
    sm_clock_max_mhz: int | None = None
    graphics_clock_max_mhz: int | None = None
    memory_clock_mhz: int | None = None
    memory_clock_max_mhz: int | None = None
    applications_graphics_clock_mhz: int | None = None
    applications_memory_clock_mhz: int | None = None
    clock_event_reasons: tuple[str, ...] | None = None
    utilization_gpu_percent: int | None = None
    utilization_memory_percent: int | None = None
    fabric_state: str | None = None
    fabric_status: str | None = None
    fabric_health: str | None = None
    processes: tuple[GpuProcess, ...] | None = None

    @property
    def label(self) -> str:
        """How findings name it: its index, where there is none its place on the bus."""
        return f"GPU {self.index}" if self.index is not None else f"GPU {self.bus_id or self.uuid or '?'}"


@dataclass(frozen=True, slots=True)
class Gpus:
    """The GPUs that the driver shows; `lost` are those that it names but cannot reach.

    `source` is the command that told: all but nvidia-smi-q leave most values None. `warnings` are nvidia-smi's own.
    """

    count: int
    devices: tuple[Gpu, ...]
    lost: tuple[str, ...] = ()
    driver_version: str | None = None
    cuda_version: str | None = None
    attached: int | None = None
    warnings: tuple[str, ...] = ()
    source: str = "nvidia-smi-query"
