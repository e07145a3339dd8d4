"""Recorded faults of GPUs: gone, sick, hot, throttled, with memory errors, or with settings that differ."""

from __future__ import annotations

from nodectl.lab.faults.base import Edit, Fault, Output, Outputs
from nodectl.lab.faults.editing import (
    CannotEditError,
    both,
    bus_of,
    every_gpu,
    everywhere,
    gpu,
    logged,
    once,
    parts_of,
    says,
    text_of,
    with_text,
)


def _without(number: int) -> Edit:
    """The driver knows one GPU less: it is in no table."""

    def edit(outputs: Outputs) -> dict[str, Output]:
        parts = parts_of(text_of(outputs, "nvidia-smi-q"))
        if number + 1 >= len(parts):
            raise CannotEditError(f"the recording has no GPU {number}")
        removed, count = parts.pop(number + 1), len(parts) - 1
        bus = removed.split()[1]
        head = parts[0].replace(f": {count + 1}\n", f": {count}\n")
        changed = with_text(outputs, "nvidia-smi-q", "".join([head, *parts[1:]]))
        rows = text_of(outputs, "nvidia-smi-query").splitlines(keepends=True)
        kept = [row for row in rows if bus not in row]
        return changed | with_text(outputs, "nvidia-smi-query", "".join(kept))

    return edit


def _lost(number: int) -> Edit:
    """nvidia-smi names a GPU that it cannot reach any more, and fails."""

    def edit(outputs: Outputs) -> dict[str, Output]:
        bus = bus_of(outputs, number)
        complaint = f"Unable to determine the device handle for GPU0000:{bus[5:].upper()}.0: Unknown Error\n"
        changed = _without(number)(outputs)
        return {key: Output(f"{output.stdout}{complaint}", "", 255) for key, output in changed.items()}

    return edit


def _fell(outputs: Outputs) -> str:
    return f"NVRM: GPU {bus_of(outputs, 6)}.0: GPU has fallen off the bus."


def _mixed(outputs: Outputs) -> dict[str, Output]:
    """One card with half the memory among the others."""
    changed = gpu(2, ("FB Memory Usage/Total", "40960 MiB"))(outputs)
    parts = parts_of(changed["nvidia-smi-q"].stdout)
    name = parts[3].partition("Product Name")[2].partition(":")[2].splitlines()[0].strip()
    other = name.replace("80GB", "40GB") if "80GB" in name else f"{name} D"
    parts[3] = parts[3].replace(f": {name}\n", f": {other}\n", 1)
    return with_text(outputs, "nvidia-smi-q", "".join(parts))


_UNREACHABLE = (
    "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. "
    "Make sure that the latest NVIDIA driver is installed and running.\n\n"
)
_MISMATCH = "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 580.105\n"
_SMI = ("nvidia-smi-q", "nvidia-smi-query", "nvidia-smi-topo", "nvidia-smi-p2p", "nvidia-smi-version")
_LINKS = ("nvidia-smi-nvlink", "nvidia-smi-nvlink-errors")
_ON, _OFF = "Active", "Not Active"
_REASONS = "Clocks Event Reasons"
_FOREIGN = """Processes
        GPU instance ID                                : N/A
        Compute instance ID                            : N/A
        Process ID                                     : 48213
            Type                                       : C
            Name                                       : /opt/miner/bin/worker
            Used GPU Memory                            : 21480 MiB"""

FAULTS: tuple[Fault, ...] = (
    Fault("gpu-missing", "the driver shows one GPU less", ("gpus",), _without(5)),
    Fault("gpu-lost", "nvidia-smi cannot reach a GPU that it names", ("gpu_lost",), _lost(3)),
    Fault(
        "gpu-fallen",
        "the kernel says that a GPU has fallen off the bus",
        ("xid",),
        logged(_fell),
    ),
    Fault("gpu-other", "one GPU has half the memory", ("gpu_model",), _mixed),
    Fault(
        "gpu-hang",
        "nvidia-smi does not end in time",
        ("gpus",),
        both(*(says(key, exit_status=124) for key in (*_SMI[:2],))),
    ),
    Fault(
        "driver-dead",
        "nvidia-smi cannot talk to the driver",
        ("driver_loaded",),
        both(*(says(key, _UNREACHABLE, exit_status=9) for key in _SMI)),
    ),
    Fault(
        "driver-mismatch",
        "driver and library have different versions",
        ("driver_library",),
        both(*(says(key, _MISMATCH, exit_status=18) for key in (*_SMI, *_LINKS))),
    ),
    Fault(
        "ecc-pending",
        "ECC is on, and will be off after the next reboot",
        ("gpu_ecc_pending",),
        gpu(1, ("ECC Mode/Pending", "Disabled")),
    ),
    Fault(
        "ecc-off",
        "ECC is off on one GPU",
        ("gpu_ecc_mode",),
        gpu(4, ("ECC Mode/Current", "Disabled"), ("ECC Mode/Pending", "Disabled")),
    ),
    Fault(
        "ecc-uncorrectable",
        "two errors that ECC could not correct since boot",
        ("gpu_ecc_uncorrectable",),
        gpu(2, ("ECC Errors/Volatile/DRAM Uncorrectable", "2")),
    ),
    Fault(
        "sram-threshold",
        "SRAM errors are over NVIDIA's threshold",
        ("gpu_sram_threshold",),
        gpu(
            0,
            ("ECC Errors/Aggregate/SRAM Uncorrectable SEC-DED", "9"),
            ("ECC Errors/Aggregate/SRAM Threshold Exceeded", "Yes"),
        ),
    ),
    Fault(
        "remap-pending",
        "a row is remapped at the next reset",
        ("gpu_remap_pending",),
        gpu(6, ("Remapped Rows/Uncorrectable Error", "1"), ("Remapped Rows/Pending", "Yes")),
    ),
    Fault(
        "remap-failure",
        "a row could not be remapped",
        ("gpu_remap_failure",),
        gpu(7, ("Remapped Rows/Remapping Failure Occurred", "Yes")),
    ),
    Fault(
        "remap-banks",
        "a bank of memory has no spare row left",
        ("gpu_remap_banks",),
        gpu(3, ("Remapped Rows/Bank Remap Availability Histogram/None", "1 bank(s)")),
    ),
    Fault(
        "persistence-off",
        "the driver is unloaded when nobody uses it",
        ("gpu_persistence",),
        every_gpu(("Persistence Mode", "Disabled")),
    ),
    Fault(
        "mig-on",
        "one GPU is split into instances",
        ("gpu_mig",),
        gpu(5, ("MIG Mode/Current", "Enabled"), ("MIG Mode/Pending", "Enabled")),
    ),
    Fault("compute-mode", "one GPU takes no process", ("gpu_compute_mode",), gpu(1, ("Compute Mode", "Prohibited"))),
    Fault(
        "hw-thermal",
        "one GPU slows itself down for its heat",
        ("gpu_hw_thermal",),
        gpu(0, (f"{_REASONS}/Idle", _OFF), (f"{_REASONS}/HW Slowdown", _ON), (f"{_REASONS}/HW Thermal Slowdown", _ON)),
    ),
    Fault(
        "power-brake",
        "the power supply slows one GPU down",
        ("gpu_power_brake",),
        gpu(
            2,
            (f"{_REASONS}/Idle", _OFF),
            (f"{_REASONS}/HW Slowdown", _ON),
            (f"{_REASONS}/HW Power Brake Slowdown", _ON),
        ),
    ),
    Fault(
        "sw-thermal",
        "the driver slows one GPU down for its heat",
        ("gpu_sw_thermal",),
        gpu(7, (f"{_REASONS}/Idle", _OFF), (f"{_REASONS}/SW Thermal Slowdown", _ON)),
    ),
    Fault(
        "gpu-hot",
        "one GPU is at 93 C",
        ("gpu_temperature",),
        gpu(4, ("Temperature/GPU Current Temp", "93 C"), ("Temperature/GPU T.Limit Temp", "-3 C")),
    ),
    Fault(
        "power-cap",
        "one GPU may draw less than the others",
        ("gpu_power_limit",),
        gpu(
            3,
            ("GPU Power Readings/Current Power Limit", "250.00 W"),
            ("GPU Power Readings/Requested Power Limit", "250.00 W"),
        ),
    ),
    Fault(
        "pcie-width",
        "one GPU talks over 8 lanes of 16",
        ("gpu_pcie_width",),
        gpu(6, ("PCI/GPU Link Info/Link Width/Current", "8x")),
    ),
    Fault(
        "pcie-gen",
        "one GPU's slot is of an older generation",
        ("gpu_pcie_gen",),
        gpu(
            1,
            ("PCI/GPU Link Info/PCIe Generation/Max", "3"),
            ("PCI/GPU Link Info/PCIe Generation/Current", "3"),
            ("PCI/GPU Link Info/PCIe Generation/Host Max", "3"),
        ),
    ),
    Fault(
        "pcie-replays",
        "one GPU's bus repeats packets",
        ("gpu_pcie_replays",),
        gpu(0, ("PCI/Replays Since Reset", "48215")),
    ),
    Fault(
        "foreign-process",
        "somebody else computes on a GPU",
        ("gpu_processes",),
        once("nvidia-smi-q", r"Processes +: None$", _FOREIGN),
    ),
    Fault(
        "wrong-vbios",
        "one host's GPUs have an older VBIOS",
        ("fleet_vbios",),
        both(
            everywhere("nvidia-smi-q", r"(VBIOS Version +: )\S+", r"\g<1>92.00.36.00.01"),
            everywhere("nvidia-smi-query", r"[^, ]+$(?<!vbios_version)", "92.00.36.00.01"),
        ),
    ),
    Fault(
        "fabric-state",
        "a GPU has not joined the NVLink fabric",
        ("gpu_fabric",),
        gpu(4, ("Fabric/State", "In Progress"), ("Fabric/Status", "N/A")),
    ),
    Fault(
        "reset-needed",
        "the driver asks for a reset of one GPU",
        ("gpu_recovery",),
        gpu(2, ("GPU Recovery Action", "GPU Reset")),
    ),
)
