"""`nvidia-smi -q` of a machine that is idle and well, in the form of the 580 drivers."""

from __future__ import annotations

from collections.abc import Iterator

from .machines import DRIVER, DRIVER_CUDA, Gpu, GpuModel, Machine

_COLUMN = 55
_NA = "N/A"
_TIME = "Mon Oct 12 08:00:03 2026"
Line = tuple[int, str, str | None]


def nvidia_smi_q(machine: Machine) -> str:
    """The whole log."""
    head: list[Line] = [
        (0, "Timestamp", _TIME),
        (0, "Driver Version", DRIVER),
        (0, "CUDA Version", DRIVER_CUDA),
    ]
    text = "\n==============NVSMI LOG==============\n\n" + "".join(map(_shown, head))
    text += "\n" + _shown((0, "Attached GPUs", str(len(machine.gpus))))
    for gpu in machine.gpus:
        text += f"GPU 00000000:{gpu.bus:02X}:00.0\n" + "".join(map(_shown, _lines(machine.gpu, gpu))) + "\n"
    return text


def _shown(line: Line) -> str:
    depth, key, value = line
    label = "    " * depth + key
    return f"{label}\n" if value is None else f"{label:<{_COLUMN}}: {value}\n"


def _group(depth: int, name: str, values: dict[str, str]) -> Iterator[Line]:
    yield depth, name, None
    for key, value in values.items():
        yield depth + 1, key, value


def _lines(model: GpuModel, gpu: Gpu) -> Iterator[Line]:
    yield from _identity(model, gpu)
    yield from _bus(model, gpu)
    yield from _reasons(model)
    yield from _memory(model)
    yield from _errors(model)
    yield from _body(model, gpu)
    yield from _clocks(model)
    fabric = ("Completed", "Success", "0") if model.nvlinks else (_NA, _NA, _NA)
    cluster = "00000000-0000-0000-0000-000000000000" if model.nvlinks else _NA
    yield from _group(1, "Fabric", {"State": fabric[0], "Status": fabric[1], "CliqueId": fabric[2]})
    yield 2, "ClusterUUID", cluster
    health = ("Bandwidth", "Route Recovery in progress", "Route Unhealthy", "Access Timeout Recovery")
    yield from _group(2, "Health", dict.fromkeys(health, _NA))
    yield 1, "Processes", "None"
    yield from _group(1, "Capabilities", {"EGM": "disabled"})


def _identity(model: GpuModel, gpu: Gpu) -> Iterator[Line]:
    mig = "Disabled" if model.data_centre else _NA
    yield 1, "Product Name", model.name
    yield 1, "Product Brand", model.brand
    yield 1, "Product Architecture", model.architecture
    yield 1, "Display Mode", "Requested functionality has been deprecated"
    yield 1, "Display Attached", "No"
    yield 1, "Display Active", "Disabled"
    yield 1, "Persistence Mode", "Enabled"
    yield 1, "Addressing Mode", "None"
    yield from _group(1, "MIG Mode", {"Current": mig, "Pending": mig})
    yield 1, "Accounting Mode", "Disabled"
    yield 1, "Accounting Mode Buffer Size", "4000"
    yield from _group(1, "Driver Model", {"Current": _NA, "Pending": _NA})
    yield 1, "Serial Number", gpu.serial
    yield 1, "GPU UUID", gpu.uuid
    yield 1, "Minor Number", str(gpu.index)
    yield 1, "VBIOS Version", model.vbios
    yield 1, "MultiGPU Board", "No"
    yield 1, "Board ID", f"0x{gpu.bus << 8:x}"
    yield 1, "Board Part Number", model.board_part
    yield 1, "GPU Part Number", model.gpu_part
    yield 1, "FRU Part Number", _NA
    platform = ("Chassis Serial Number", "Slot Number", "Tray Index", "Host ID", "Peer Type")
    yield from _group(1, "Platform Info", dict.fromkeys(platform, _NA))
    yield 2, "Module Id", str(gpu.index + 1)
    yield 2, "GPU Fabric GUID", _NA
    oem = "2.0" if model.architecture != "Hopper" else "2.1"
    yield from _group(1, "Inforom Version", {"OEM Object": oem, "ECC Object": "6.16", "Power Management Object": _NA})
    yield from _group(1, "Inforom BBX Object Flush", {"Latest Timestamp": _NA, "Latest Duration": _NA})
    yield from _group(1, "GPU Operation Mode", {"Current": _NA, "Pending": _NA})
    yield 1, "GPU C2C Mode", _NA
    virtual = {"Virtualization Mode": "None", "Host VGPU Mode": _NA, "vGPU Heterogeneous Mode": _NA}
    yield from _group(1, "GPU Virtualization Mode", virtual)
    yield 1, "GPU Recovery Action", "None"
    yield 1, "GSP Firmware Version", DRIVER
    yield from _group(1, "IBMNPU", {"Relaxed Ordering Mode": _NA})


def _bus(model: GpuModel, gpu: Gpu) -> Iterator[Line]:
    yield 1, "PCI", None
    yield 2, "Bus", f"0x{gpu.bus:02X}"
    yield 2, "Device", "0x00"
    yield 2, "Domain", "0x0000"
    yield 2, "Base Classcode", "0x3"
    yield 2, "Sub Classcode", "0x2" if model.data_centre else "0x0"
    yield 2, "Device Id", f"0x{model.device_id}10DE"
    yield 2, "Bus Id", f"00000000:{gpu.bus:02X}:00.0"
    yield 2, "Sub System Id", f"0x{model.subsystem_id}10DE"
    yield 2, "GPU Link Info", None
    top, now = str(model.pcie_gen), str(model.idle_gen)
    generations = {"Max": top, "Current": now, "Device Current": now, "Device Max": top, "Host Max": top}
    yield from _group(3, "PCIe Generation", generations)
    yield from _group(3, "Link Width", {"Max": "16x", "Current": "16x"})
    yield from _group(2, "Bridge Chip", {"Type": _NA, "Firmware": _NA})
    yield 2, "Replays Since Reset", "0"
    yield 2, "Replay Number Rollovers", "0"
    yield 2, "Tx Throughput", f"{350 + 7 * gpu.index} KB/s"
    yield 2, "Rx Throughput", f"{290 + 5 * gpu.index} KB/s"
    yield 2, "Atomic Caps Outbound", _NA
    yield 2, "Atomic Caps Inbound", _NA
    yield 1, "Fan Speed", _NA if model.data_centre else "0 %"
    yield 1, "Performance State", model.idle_state


def _reasons(model: GpuModel) -> Iterator[Line]:
    off = "Not Active"
    yield from _group(1, "Clocks Event Reasons", {"Idle": "Active", "Applications Clocks Setting": off})
    yield 2, "SW Power Cap", off
    yield 2, "HW Slowdown", off
    yield 3, "HW Thermal Slowdown", off
    yield 3, "HW Power Brake Slowdown", off
    for name in ("Sync Boost", "SW Thermal Slowdown", "Display Clock Setting"):
        yield 2, name, off
    counters = ("SW Power Capping", "Sync Boost", "SW Thermal Slowdown", "HW Thermal Slowdown", "HW Power Braking")
    yield from _group(1, "Clocks Event Reasons Counters", dict.fromkeys(counters, "0 us"))
    yield 1, "Sparse Operation Mode", "Disabled" if model.data_centre else _NA


def _memory(model: GpuModel) -> Iterator[Line]:
    free = model.memory_mib - model.reserved_mib - 4
    yield 1, "FB Memory Usage", None
    for key, value in (("Total", model.memory_mib), ("Reserved", model.reserved_mib), ("Used", 4), ("Free", free)):
        yield 2, key, f"{value} MiB"
    bar1 = {"Total": f"{model.bar1_mib} MiB", "Used": "1 MiB", "Free": f"{model.bar1_mib - 1} MiB"}
    yield from _group(1, "BAR1 Memory Usage", bar1)
    confidential = dict.fromkeys(("Total", "Used", "Free"), "0 MiB")
    yield from _group(1, "Conf Compute Protected Memory Usage", confidential)
    yield 1, "Compute Mode", "Default"
    busy = ("GPU", "Memory", "Encoder", "Decoder", "JPEG", "OFA")
    yield from _group(1, "Utilization", dict.fromkeys(busy, "0 %"))
    for name in ("Encoder Stats", "FBC Stats"):
        yield from _group(1, name, dict.fromkeys(("Active Sessions", "Average FPS", "Average Latency"), "0"))
    yield from _group(1, "DRAM Encryption Mode", {"Current": _NA, "Pending": _NA})


def _errors(model: GpuModel) -> Iterator[Line]:
    ecc, count = ("Enabled", "0") if model.data_centre else ("Disabled", _NA)
    static = ("SRAM Correctable", "SRAM Uncorrectable Parity", "SRAM Uncorrectable SEC-DED")
    kinds = (*static, "DRAM Correctable", "DRAM Uncorrectable")
    yield from _group(1, "ECC Mode", {"Current": ecc, "Pending": ecc})
    yield 1, "ECC Errors", None
    yield from _group(2, "Volatile", dict.fromkeys(kinds, count))
    yield from _group(2, "Aggregate", dict.fromkeys(kinds, count))
    yield 3, "SRAM Threshold Exceeded", "No" if model.data_centre else _NA
    places = ("SRAM L2", "SRAM SM", "SRAM Microcontroller", "SRAM PCIE", "SRAM Other")
    yield from _group(2, "Aggregate Uncorrectable SRAM Sources", dict.fromkeys(places, count))
    repair = "No" if model.data_centre else _NA
    yield 2, "Channel Repair Pending", repair
    yield 2, "TPC Repair Pending", repair
    retired = ("Single Bit ECC", "Double Bit ECC", "Pending Page Blacklist")
    yield from _group(1, "Retired Pages", dict.fromkeys(retired, _NA))
    if not model.data_centre:
        yield 1, "Remapped Rows", _NA
        return
    remapped = {"Correctable Error": "0", "Uncorrectable Error": "0", "Pending": "No"}
    yield from _group(1, "Remapped Rows", {**remapped, "Remapping Failure Occurred": "No"})
    banks = {"Max": f"{model.banks} bank(s)", **dict.fromkeys(("High", "Partial", "Low", "None"), "0 bank(s)")}
    yield from _group(2, "Bank Remap Availability Histogram", banks)


def _body(model: GpuModel, gpu: Gpu) -> Iterator[Line]:
    yield 1, "Temperature", None
    yield 2, "GPU Current Temp", f"{29 + gpu.index % 4} C"
    yield 2, "GPU T.Limit Temp", f"{56 - gpu.index % 4} C"
    yield 2, "GPU Shutdown T.Limit Temp", "-8 C"
    yield 2, "GPU Slowdown T.Limit Temp", "-2 C"
    yield 2, "GPU Max Operating T.Limit Temp", "0 C"
    yield 2, "GPU Target Temperature", _NA if model.data_centre else "84 C"
    yield 2, "Memory Current Temp", f"{34 + gpu.index % 3} C" if model.data_centre else _NA
    yield 2, "Memory Max Operating T.Limit Temp", "0 C" if model.data_centre else _NA
    watts, limit = f"{model.idle_w + 0.37 * gpu.index:.2f} W", f"{model.power_limit_w}.00 W"
    yield 1, "GPU Power Readings", None
    yield 2, "Average Power Draw", watts
    yield 2, "Instantaneous Power Draw", watts
    for name in ("Current Power Limit", "Requested Power Limit", "Default Power Limit"):
        yield 2, name, limit
    yield 2, "Min Power Limit", f"{100 if model.power_limit_w == 400 else 200 if model.data_centre else 150}.00 W"
    yield 2, "Max Power Limit", limit
    draws = ("Average Power Draw", "Instantaneous Power Draw")
    yield from _group(1, "GPU Memory Power Readings", dict.fromkeys(draws, _NA))
    limits = ("Current Power Limit", "Requested Power Limit", "Default Power Limit", "Min Power Limit")
    yield from _group(1, "Module Power Readings", dict.fromkeys((*draws, *limits, "Max Power Limit"), _NA))
    yield 1, "Power Smoothing", _NA
    yield from _group(1, "Workload Power Profiles", {"Requested Profiles": _NA, "Enforced Profiles": _NA})


def _clocks(model: GpuModel) -> Iterator[Line]:
    now = {"Graphics": f"{model.sm_mhz} MHz", "SM": f"{model.sm_mhz} MHz", "Memory": f"{model.memory_mhz} MHz"}
    top = {"Graphics": f"{model.sm_max_mhz} MHz", "SM": f"{model.sm_max_mhz} MHz"}
    gone = "Requested functionality has been deprecated"
    yield from _group(1, "Clocks", {**now, "Video": "765 MHz"})
    yield from _group(1, "Applications Clocks", {"Graphics": gone, "Memory": gone})
    yield from _group(1, "Default Applications Clocks", {"Graphics": gone, "Memory": gone})
    yield from _group(1, "Deferred Clocks", {"Memory": _NA})
    yield from _group(1, "Max Clocks", {**top, "Memory": f"{model.memory_max_mhz} MHz", "Video": "1545 MHz"})
    customer = f"{model.sm_max_mhz} MHz" if model.data_centre else _NA
    yield from _group(1, "Max Customer Boost Clocks", {"Graphics": customer})
    yield from _group(1, "Clock Policy", {"Auto Boost": _NA, "Auto Boost Default": _NA})
