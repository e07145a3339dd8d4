"""Recorded faults of GPUs: gone, sick, hot, throttled, with memory errors, or with settings that differ."""

from __future__ import annotations

from nodectl.lab.faults.base import Edit, Fault, Output, Outputs
from nodectl.lab.faults.editing import (
    bus_of,
    every_gpu,
    everywhere,
    gpu,
    logged,
    once,
    parts_with,
    recorded,
    says,
    text_of,
    with_text,
)


def _without(number: int) -> Edit:
    """The driver knows one GPU less: it is in no table."""

    def edit(outputs: Outputs) -> dict[str, Output]:
        parts = parts_with(outputs, number)
        removed, count = parts.pop(number + 1), len(parts) - 1
        bus = removed.split()[1]
        head = parts[0].replace(f": {count + 1}\n", f": {count}\n")
        changed = with_text(outputs, "nvidia-smi-q", "".join([head, *parts[1:]]))
        rows = text_of(outputs, "nvidia-smi-query").splitlines(keepends=True)
        kept = [row for row in rows if bus not in row]
        return changed | with_text(outputs, "nvidia-smi-query", "".join(kept))

    return edit


def _lost(number: int, *, alone: bool = False) -> Edit:
    """nvidia-smi names a GPU that it cannot reach any more, behind the others or alone, and fails."""

    def edit(outputs: Outputs) -> dict[str, Output]:
        bus = bus_of(outputs, number)
        complaint = f"Unable to determine the device handle for GPU0000:{bus[5:].upper()}.0: Unknown Error\n"
        shown = {key: "" if alone else output.stdout for key, output in _without(number)(outputs).items()}
        return {key: Output(f"{text}{complaint}", "", 255) for key, text in shown.items()}

    return edit


def _report_cut(outputs: Outputs) -> dict[str, Output]:
    """A report that ends in the sixth GPU, between two lines."""
    parts = parts_with(outputs, 5)
    lines = parts[6].splitlines(keepends=True)
    return with_text(outputs, "nvidia-smi-q", "".join([*parts[:6], *lines[: len(lines) // 3]]))


def _mixed(outputs: Outputs) -> dict[str, Output]:
    """One card with half the memory among the others."""
    changed = gpu(2, ("FB Memory Usage/Total", "40960 MiB"))(outputs)
    parts = parts_with(changed, 2)
    name = parts[3].partition("Product Name")[2].partition(":")[2].splitlines()[0].strip()
    other = name.replace("80GB", "40GB") if "80GB" in name else f"{name} D"
    parts[3] = parts[3].replace(f": {name}\n", f": {other}\n", 1)
    return with_text(outputs, "nvidia-smi-q", "".join(parts))


def _exchanged(outputs: Outputs) -> dict[str, Output]:
    """The driver numbers the first two cards the other way round."""
    one, two = (f"0000{bus_of(outputs, number).upper()}.0" for number in (0, 1))

    def swapped(key: str) -> dict[str, Output]:
        text = text_of(outputs, key).replace(one, "\0").replace(two, one).replace("\0", two)
        return with_text(outputs, key, text)

    return swapped("nvidia-smi-q") | swapped("nvidia-smi-query")


def _fields(name: str, about: str, check: str, number: int, *fields: tuple[str, str]) -> Fault:
    """The GPU of that number has other values in these fields of `nvidia-smi -q`."""
    return recorded(name, about, check, gpu(number, *fields))


def _slowed(name: str, about: str, check: str, number: int, *reasons: str) -> Fault:
    """The GPU of that number is not idle: its clocks are held down for these reasons."""
    fields = [("Clocks Event Reasons/Idle", "Not Active")]
    fields += [(f"Clocks Event Reasons/{reason}", "Active") for reason in reasons]
    return _fields(name, about, check, number, *fields)


_UNREACHABLE = (
    "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. "
    "Make sure that the latest NVIDIA driver is installed and running.\n\n"
)
_MISMATCH = "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 580.105\n"
_SMI = ("nvidia-smi-q", "nvidia-smi-query", "nvidia-smi-topo", "nvidia-smi-p2p", "nvidia-smi-version")
_LINKS = ("nvidia-smi-nvlink", "nvidia-smi-nvlink-errors")
_FOREIGN = """Processes
        GPU instance ID                                : N/A
        Compute instance ID                            : N/A
        Process ID                                     : 48213
            Type                                       : C
            Name                                       : /opt/miner/bin/worker
            Used GPU Memory                            : 21480 MiB"""

FAULTS: tuple[Fault, ...] = (
    recorded("gpu-missing", "the driver shows one GPU less", "gpus", _without(5)),
    recorded("gpu-lost", "nvidia-smi cannot reach a GPU that it names", "gpu_lost", _lost(3)),
    recorded("gpu-lost-alone", "nvidia-smi says only which GPU it cannot reach", "gpu_lost", _lost(0, alone=True)),
    recorded(
        "gpu-fallen",
        "the kernel says that a GPU has fallen off the bus",
        "xid",
        logged(lambda outputs: f"NVRM: GPU {bus_of(outputs, 6)}.0: GPU has fallen off the bus."),
    ),
    recorded("gpu-order", "the first two GPUs have each other's number", "fleet_gpu_order", _exchanged),
    recorded("gpu-other", "one GPU has half the memory", "gpu_model", _mixed),
    recorded("gpu-absent", "nvidia-smi is not installed", "gpus", says(_SMI, exit_status=127)),
    recorded("gpu-report-cut", "nvidia-smi's report ends in the middle of a GPU", "gpu_report", _report_cut),
    recorded("gpu-hang", "nvidia-smi does not end in time", "hung", says(_SMI[:2], exit_status=124)),
    recorded(
        "driver-dead",
        "nvidia-smi cannot talk to the driver",
        "driver_loaded",
        says(_SMI, _UNREACHABLE, exit_status=9),
    ),
    recorded(
        "driver-mismatch",
        "driver and library have different versions",
        "driver_library",
        says((*_SMI, *_LINKS), _MISMATCH, exit_status=18),
    ),
    _fields(
        "ecc-pending",
        "ECC is on, and will be off after the next reboot",
        "gpu_ecc_pending",
        1,
        ("ECC Mode/Pending", "Disabled"),
    ),
    _fields(
        "ecc-off",
        "ECC is off on one GPU",
        "gpu_ecc_mode",
        4,
        ("ECC Mode/Current", "Disabled"),
        ("ECC Mode/Pending", "Disabled"),
    ),
    _fields(
        "ecc-uncorrectable",
        "two errors that ECC could not correct since boot",
        "gpu_ecc_uncorrectable",
        2,
        ("ECC Errors/Volatile/DRAM Uncorrectable", "2"),
    ),
    _fields(
        "sram-threshold",
        "SRAM errors are over NVIDIA's threshold",
        "gpu_sram_threshold",
        0,
        ("ECC Errors/Aggregate/SRAM Uncorrectable SEC-DED", "9"),
        ("ECC Errors/Aggregate/SRAM Threshold Exceeded", "Yes"),
    ),
    _fields(
        "remap-pending",
        "a row is remapped at the next reset",
        "gpu_remap_pending",
        6,
        ("Remapped Rows/Uncorrectable Error", "1"),
        ("Remapped Rows/Pending", "Yes"),
    ),
    _fields(
        "remap-failure",
        "a row could not be remapped",
        "gpu_remap_failure",
        7,
        ("Remapped Rows/Remapping Failure Occurred", "Yes"),
    ),
    _fields(
        "remap-banks",
        "a bank of memory has no spare row left",
        "gpu_remap_banks",
        3,
        ("Remapped Rows/Bank Remap Availability Histogram/None", "1 bank(s)"),
    ),
    recorded(
        "persistence-off",
        "the driver is unloaded when nobody uses it",
        "gpu_persistence",
        every_gpu(("Persistence Mode", "Disabled")),
    ),
    _fields(
        "mig-on",
        "one GPU is split into instances",
        "gpu_mig",
        5,
        ("MIG Mode/Current", "Enabled"),
        ("MIG Mode/Pending", "Enabled"),
    ),
    _fields("compute-mode", "one GPU takes no process", "gpu_compute_mode", 1, ("Compute Mode", "Prohibited")),
    _slowed(
        "hw-thermal",
        "one GPU slows itself down for its heat",
        "gpu_hw_thermal",
        0,
        "HW Slowdown",
        "HW Thermal Slowdown",
    ),
    _slowed(
        "power-brake",
        "the power supply slows one GPU down",
        "gpu_power_brake",
        2,
        "HW Slowdown",
        "HW Power Brake Slowdown",
    ),
    _slowed("sw-thermal", "the driver slows one GPU down for its heat", "gpu_sw_thermal", 7, "SW Thermal Slowdown"),
    _fields(
        "gpu-hot",
        "one GPU is at 93 C",
        "gpu_temperature",
        4,
        ("Temperature/GPU Current Temp", "93 C"),
        ("Temperature/GPU T.Limit Temp", "-3 C"),
    ),
    _fields(
        "power-cap",
        "one GPU may draw less than the others",
        "gpu_power_limit",
        3,
        ("GPU Power Readings/Current Power Limit", "250.00 W"),
        ("GPU Power Readings/Requested Power Limit", "250.00 W"),
    ),
    _fields(
        "pcie-width",
        "one GPU talks over 8 lanes of 16",
        "gpu_pcie_width",
        6,
        ("PCI/GPU Link Info/Link Width/Current", "8x"),
    ),
    _fields(
        "pcie-gen",
        "one GPU's slot is of an older generation",
        "gpu_pcie_gen",
        1,
        ("PCI/GPU Link Info/PCIe Generation/Max", "3"),
        ("PCI/GPU Link Info/PCIe Generation/Current", "3"),
        ("PCI/GPU Link Info/PCIe Generation/Host Max", "3"),
    ),
    _fields(
        "pcie-replays", "one GPU's bus repeats packets", "gpu_pcie_replays", 0, ("PCI/Replays Since Reset", "48215")
    ),
    recorded(
        "foreign-process",
        "somebody else computes on a GPU",
        "gpu_processes",
        once("nvidia-smi-q", r"Processes +: None$", _FOREIGN),
    ),
    recorded(
        "wrong-vbios",
        "one host's GPUs have an older VBIOS",
        "fleet_vbios",
        everywhere("nvidia-smi-q", r"(VBIOS Version +: )\S+", r"\g<1>92.00.36.00.01"),
        everywhere("nvidia-smi-query", r"[^, ]+$(?<!vbios_version)", "92.00.36.00.01"),
    ),
    _fields(
        "fabric-state",
        "a GPU has not joined the NVLink fabric",
        "gpu_fabric",
        4,
        ("Fabric/State", "In Progress"),
        ("Fabric/Status", "N/A"),
    ),
    _fields(
        "reset-needed",
        "the driver asks for a reset of one GPU",
        "gpu_recovery",
        2,
        ("GPU Recovery Action", "GPU Reset"),
    ),
)
