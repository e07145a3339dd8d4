"""Machines that do not exist, in the form in which nvidia-smi prints those that do: text and XML of the same values."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

REASONS = (
    ("idle", "Idle", "gpu_idle"),
    ("applications_clocks_setting", "Applications Clocks Setting", "applications_clocks_setting"),
    ("sw_power_cap", "SW Power Cap", "sw_power_cap"),
    ("hw_slowdown", "HW Slowdown", "hw_slowdown"),
    ("hw_thermal_slowdown", "    HW Thermal Slowdown", "hw_thermal_slowdown"),
    ("hw_power_brake_slowdown", "    HW Power Brake Slowdown", "hw_power_brake_slowdown"),
    ("sync_boost", "Sync Boost", "sync_boost"),
    ("sw_thermal_slowdown", "SW Thermal Slowdown", "sw_thermal_slowdown"),
    ("display_clocks_setting", "Display Clock Setting", "display_clocks_setting"),
)
# field: (unit, text's section and key, XML's path); a `None` section begins no new one
_FIELDS: dict[str, tuple[str, tuple[str, ...], tuple[str, ...]]] = {
    "name": ("text", ("Product Name",), ("product_name",)),
    "persistence_mode": ("Enabled", ("Persistence Mode",), ("persistence_mode",)),
    "mig_mode": ("Enabled", ("MIG Mode", "Current"), ("mig_mode", "current_mig")),
    "serial": ("text", ("Serial Number",), ("serial",)),
    "uuid": ("text", ("GPU UUID",), ("uuid",)),
    "minor_number": ("", ("Minor Number",), ("minor_number",)),
    "vbios_version": ("text", ("VBIOS Version",), ("vbios_version",)),
    "pcie_gen_max": (
        *("", ("PCI", "GPU Link Info", "PCIe Generation", "Max")),
        ("pci", "pci_gpu_link_info", "pcie_gen", "max_link_gen"),
    ),
    "pcie_gen_current": (
        *("", ("PCI", "GPU Link Info", "PCIe Generation", "Current")),
        ("pci", "pci_gpu_link_info", "pcie_gen", "current_link_gen"),
    ),
    "pcie_width_max": (
        *("x", ("PCI", "GPU Link Info", "Link Width", "Max")),
        ("pci", "pci_gpu_link_info", "link_widths", "max_link_width"),
    ),
    "pcie_width_current": (
        *("x", ("PCI", "GPU Link Info", "Link Width", "Current")),
        ("pci", "pci_gpu_link_info", "link_widths", "current_link_width"),
    ),
    "pcie_replay_counter": ("", ("PCI", "Replays Since Reset"), ("pci", "replay_counter")),
    "memory_total_mib": (" MiB", ("FB Memory Usage", "Total"), ("fb_memory_usage", "total")),
    "memory_used_mib": (" MiB", ("FB Memory Usage", "Used"), ("fb_memory_usage", "used")),
    "bar1_used_mib": (" MiB", ("BAR1 Memory Usage", "Used"), ("bar1_memory_usage", "used")),
    "utilization_gpu_percent": (" %", ("Utilization", "GPU"), ("utilization", "gpu_util")),
    "ecc_mode_current": ("Enabled", ("ECC Mode", "Current"), ("ecc_mode", "current_ecc")),
    "ecc_mode_pending": ("Enabled", ("ECC Mode", "Pending"), ("ecc_mode", "pending_ecc")),
    "ecc_volatile_sram_correctable": (
        *("", ("ECC Errors", "Volatile", "SRAM Correctable")),
        ("ecc_errors", "volatile", "sram_correctable"),
    ),
    "ecc_volatile_dram_correctable": (
        *("", ("ECC Errors", "Volatile", "DRAM Correctable")),
        ("ecc_errors", "volatile", "dram_correctable"),
    ),
    "ecc_aggregate_dram_uncorrectable": (
        *("", ("ECC Errors", "Aggregate", "DRAM Uncorrectable")),
        ("ecc_errors", "aggregate", "dram_uncorrectable"),
    ),
    "retired_pages_double_bit": (
        *("", ("Retired Pages", "Double Bit ECC")),
        ("retired_pages", "double_bit_retirement", "retired_count"),
    ),
    "remapped_uncorrectable": (
        *("", ("Remapped Rows", "Uncorrectable Error")),
        ("remapped_rows", "remapped_row_unc"),
    ),
    "remap_pending": ("Yes", ("Remapped Rows", "Pending"), ("remapped_rows", "remapped_row_pending")),
    "remap_failure": (
        *("Yes", ("Remapped Rows", "Remapping Failure Occurred")),
        ("remapped_rows", "remapped_row_failure"),
    ),
    "remap_banks_low": (
        *(" bank(s)", ("Remapped Rows", "Bank Remap Availability Histogram", "Low")),
        ("remapped_rows", "row_remapper_histogram", "row_remapper_histogram_low"),
    ),
    "temperature_c": (" C", ("Temperature", "GPU Current Temp"), ("temperature", "gpu_temp")),
    "memory_temperature_c": (" C", ("Temperature", "Memory Current Temp"), ("temperature", "memory_temp")),
    "power_draw_w": (
        *(" W", ("GPU Power Readings", "Average Power Draw")),
        ("gpu_power_readings", "average_power_draw"),
    ),
    "power_limit_w": (
        *(" W", ("GPU Power Readings", "Current Power Limit")),
        ("gpu_power_readings", "current_power_limit"),
    ),
    "module_power_draw_w": (
        *(" W", ("Module Power Readings", "Average Power Draw")),
        ("module_power_readings", "average_power_draw"),
    ),
    "sm_clock_mhz": (" MHz", ("Clocks", "SM"), ("clocks", "sm_clock")),
    "memory_clock_mhz": (" MHz", ("Clocks", "Memory"), ("clocks", "mem_clock")),
    "sm_clock_max_mhz": (" MHz", ("Max Clocks", "SM"), ("max_clocks", "sm_clock")),
    "fabric_state": ("text", ("Fabric", "State"), ("fabric", "state")),
}
REFUSALS = (
    "N/A",
    "[N/A]",
    "Not Supported",
    "[Not Supported]",
    "ERR!",
    "Unknown Error",
    "[Unknown Error]",
    "GPU is lost",
)

_words = (
    st.text("ABCxyz019-._ ", min_size=1, max_size=20)
    .map(str.strip)
    .filter(lambda text: text not in ("", "None") and text.strip(" ") == text)
)
_counts = st.integers(0, 2**40)


def _values(unit: str) -> st.SearchStrategy[Any]:
    if unit == "text":
        return _words
    if unit in ("Enabled", "Yes"):
        return st.booleans()
    return st.integers(0, 99999).map(lambda cents: cents / 100) if unit == " W" else _counts


@st.composite
def gpus(draw: st.DrawFn) -> dict[str, Any]:
    """Values by field; a word of REFUSALS under `refused` where there is none."""
    values = {name: draw(_values(unit)) for name, (unit, _, _) in _FIELDS.items()}
    words = draw(st.dictionaries(st.sampled_from(sorted(_FIELDS)), st.sampled_from(REFUSALS), max_size=8))
    process = st.tuples(st.integers(1, 2**22), st.sampled_from(("C", "G", "C+G")), _words, _counts)
    return {
        "bus_id": "{:04X}:{:02X}:{:02X}.0".format(*draw(st.tuples(*(st.integers(0, top) for top in (65535, 255, 31))))),
        "values": {name: None if name in words else value for name, value in values.items()},
        "refused": words,
        "reasons": draw(st.lists(st.sampled_from([name for name, _, _ in REASONS]), unique=True)),
        "processes": draw(st.lists(process, max_size=3)),
    }


machines = st.lists(gpus(), min_size=1, max_size=3)


def _printed(gpu: dict[str, Any], name: str) -> str:
    value, unit = gpu["values"][name], _FIELDS[name][0]
    if value is None:
        return str(gpu["refused"][name])
    if unit == "text":
        return str(value)
    if isinstance(value, bool):
        return {"Enabled": ("Disabled", "Enabled"), "Yes": ("No", "Yes")}[unit][value]
    return f"{value:.2f}{unit}" if unit == " W" else f"{value}{unit}"


def as_text(machine: list[dict[str, Any]]) -> str:
    """What `nvidia-smi -q` prints."""
    lines = ["", "==============NVSMI LOG==============", "", f"{'Driver Version':<55}: 590.48.01"]
    lines += [f"{'CUDA Version':<55}: 13.1", "", f"{'Attached GPUs':<55}: {len(machine)}"]
    for gpu in machine:
        lines.append(f"GPU 0000{gpu['bus_id']}")
        above: tuple[str, ...] = ()
        for name, (_, path, _) in _FIELDS.items():
            for depth, section in enumerate(path[:-1]):
                if above[: depth + 1] != path[: depth + 1]:
                    lines.append(f"{'    ' * (depth + 1)}{section}")
                    above = path[: depth + 1]
            indent = "    " * len(path)
            lines.append(f"{indent + path[-1]:<55}: {_printed(gpu, name)}")
            above = path[:-1]
        lines.append("    Clocks Event Reasons")
        lines += [
            f"{'        ' + label:<55}: {'Active' if name in gpu['reasons'] else 'Not Active'}"
            for name, label, _ in REASONS
        ]
        lines += _processes_text(gpu)
    return "\n".join(lines) + "\n\n"


def _processes_text(gpu: dict[str, Any]) -> list[str]:
    if not gpu["processes"]:
        return [f"{'    Processes':<55}: None"]
    lines = ["    Processes"]
    for pid, kind, name, memory_mib in gpu["processes"]:
        pairs = (("GPU instance ID", "N/A"), ("Compute instance ID", "N/A"), ("Process ID", pid))
        lines += [f"{'        ' + key:<42}: {value}" for key, value in pairs]
        inner = (("Type", kind), ("Name", name), ("Used GPU Memory", f"{memory_mib} MiB"))
        lines += [f"{'            ' + key:<42}: {value}" for key, value in inner]
    return lines


def as_xml(machine: list[dict[str, Any]]) -> str:
    """What `nvidia-smi -q -x` prints."""
    body = ["<?xml version='1.0' ?>", '<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v13.dtd">', "<nvidia_smi_log>"]
    body += ["<driver_version>590.48.01</driver_version>", "<cuda_version>13.1</cuda_version>"]
    body.append(f"<attached_gpus>{len(machine)}</attached_gpus>")
    for gpu in machine:
        body.append(f'<gpu id="0000{gpu["bus_id"]}">')
        tree: dict[str, Any] = {}
        for name, (_, _, path) in _FIELDS.items():
            inner = tree
            for section in path[:-1]:
                inner = inner.setdefault(section, {})
            inner[path[-1]] = _printed(gpu, name)
        tree["clocks_event_reasons"] = {
            f"clocks_event_reason_{tag}": "Active" if name in gpu["reasons"] else "Not Active"
            for name, _, tag in REASONS
        }
        body += [*_elements(tree, 1), "<mig_devices>", "None", "</mig_devices>", "<processes>"]
        for pid, kind, name, memory_mib in gpu["processes"]:
            pairs = {"gpu_instance_id": "N/A", "compute_instance_id": "N/A", "pid": pid, "type": kind}
            pairs |= {"process_name": name, "used_memory": f"{memory_mib} MiB"}
            body += ["<process_info>", *_elements(pairs, 2), "</process_info>"]
        body += ["</processes>", "</gpu>"]
    return "\n".join([*body, "</nvidia_smi_log>"]) + "\n"


def _elements(tree: dict[str, Any], depth: int) -> list[str]:
    lines = []
    for tag, value in tree.items():
        tabs = "\t" * depth
        if isinstance(value, dict):
            lines += [f"{tabs}<{tag}>", *_elements(value, depth + 1), f"{tabs}</{tag}>"]
        else:
            lines.append(f"{tabs}<{tag}>{value}</{tag}>")
    return lines
