"""Recorded faults of GPUs that still answer: memory errors, heat, throttling, and settings that differ."""

from __future__ import annotations

from nodectl.lab.faults.base import Fault
from nodectl.lab.faults.edits import both, every_gpu, everywhere, gpu, once
from nodectl.lab.faults.recorded import fault

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
    fault(
        "ecc-pending",
        "ECC is on, and will be off after the next reboot",
        ("gpu_ecc_pending",),
        gpu(1, ("ECC Mode/Pending", "Disabled")),
    ),
    fault(
        "ecc-off",
        "ECC is off on one GPU",
        ("gpu_ecc_mode",),
        gpu(4, ("ECC Mode/Current", "Disabled"), ("ECC Mode/Pending", "Disabled")),
    ),
    fault(
        "ecc-uncorrectable",
        "two errors that ECC could not correct since boot",
        ("gpu_ecc_uncorrectable",),
        gpu(2, ("ECC Errors/Volatile/DRAM Uncorrectable", "2")),
    ),
    fault(
        "sram-threshold",
        "SRAM errors are over NVIDIA's threshold",
        ("gpu_sram_threshold",),
        gpu(
            0,
            ("ECC Errors/Aggregate/SRAM Uncorrectable SEC-DED", "9"),
            ("ECC Errors/Aggregate/SRAM Threshold Exceeded", "Yes"),
        ),
    ),
    fault(
        "remap-pending",
        "a row is remapped at the next reset",
        ("gpu_remap_pending",),
        gpu(6, ("Remapped Rows/Uncorrectable Error", "1"), ("Remapped Rows/Pending", "Yes")),
    ),
    fault(
        "remap-failure",
        "a row could not be remapped",
        ("gpu_remap_failure",),
        gpu(7, ("Remapped Rows/Remapping Failure Occurred", "Yes")),
    ),
    fault(
        "remap-banks",
        "a bank of memory has no spare row left",
        ("gpu_remap_banks",),
        gpu(3, ("Remapped Rows/Bank Remap Availability Histogram/None", "1 bank(s)")),
    ),
    fault(
        "persistence-off",
        "the driver is unloaded when nobody uses it",
        ("gpu_persistence",),
        every_gpu(("Persistence Mode", "Disabled")),
    ),
    fault(
        "mig-on",
        "one GPU is split into instances",
        ("gpu_mig",),
        gpu(5, ("MIG Mode/Current", "Enabled"), ("MIG Mode/Pending", "Enabled")),
    ),
    fault("compute-mode", "one GPU takes no process", ("gpu_compute_mode",), gpu(1, ("Compute Mode", "Prohibited"))),
    fault(
        "hw-thermal",
        "one GPU slows itself down for its heat",
        ("gpu_hw_thermal",),
        gpu(0, (f"{_REASONS}/Idle", _OFF), (f"{_REASONS}/HW Slowdown", _ON), (f"{_REASONS}/HW Thermal Slowdown", _ON)),
    ),
    fault(
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
    fault(
        "sw-thermal",
        "the driver slows one GPU down for its heat",
        ("gpu_sw_thermal",),
        gpu(7, (f"{_REASONS}/Idle", _OFF), (f"{_REASONS}/SW Thermal Slowdown", _ON)),
    ),
    fault(
        "gpu-hot",
        "one GPU is at 93 C",
        ("gpu_temperature",),
        gpu(4, ("Temperature/GPU Current Temp", "93 C"), ("Temperature/GPU T.Limit Temp", "-3 C")),
    ),
    fault(
        "power-cap",
        "one GPU may draw less than the others",
        ("gpu_power_limit",),
        gpu(
            3,
            ("GPU Power Readings/Current Power Limit", "250.00 W"),
            ("GPU Power Readings/Requested Power Limit", "250.00 W"),
        ),
    ),
    fault(
        "pcie-width",
        "one GPU talks over 8 lanes of 16",
        ("gpu_pcie_width",),
        gpu(6, ("PCI/GPU Link Info/Link Width/Current", "8x")),
    ),
    fault(
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
    fault(
        "pcie-replays",
        "one GPU's bus repeats packets",
        ("gpu_pcie_replays",),
        gpu(0, ("PCI/Replays Since Reset", "48215")),
    ),
    fault(
        "foreign-process",
        "somebody else computes on a GPU",
        ("gpu_processes",),
        once("nvidia-smi-q", r"Processes +: None$", _FOREIGN),
    ),
    fault(
        "wrong-vbios",
        "one host's GPUs have an older VBIOS",
        ("fleet_vbios",),
        both(
            everywhere("nvidia-smi-q", r"(VBIOS Version +: )\S+", r"\g<1>92.00.36.00.01"),
            everywhere("nvidia-smi-query", r"[^, ]+$(?<!vbios_version)", "92.00.36.00.01"),
        ),
    ),
    fault(
        "fabric-state",
        "a GPU has not joined the NVLink fabric",
        ("gpu_fabric",),
        gpu(4, ("Fabric/State", "In Progress"), ("Fabric/Status", "N/A")),
    ),
    fault(
        "reset-needed",
        "the driver asks for a reset of one GPU",
        ("gpu_recovery",),
        gpu(2, ("GPU Recovery Action", "GPU Reset")),
    ),
)
