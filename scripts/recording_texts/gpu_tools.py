"""The rest of what nvidia-smi and its relatives print: tables, matrices, links, versions."""

from __future__ import annotations

from collections.abc import Callable

from .machines import DRIVER, DRIVER_CUDA, Gpu, Machine

_LEGEND = """
Legend:

  X    = Self
  SYS  = Connection traversing PCIe as well as the SMP interconnect between NUMA nodes (e.g., QPI/UPI)
  NODE = Connection traversing PCIe as well as the interconnect between PCIe Host Bridges within a NUMA node
  PHB  = Connection traversing PCIe as well as a PCIe Host Bridge (typically the CPU)
  PXB  = Connection traversing multiple PCIe bridges (without traversing the PCIe Host Bridge)
  PIX  = Connection traversing at most a single PCIe bridge
  NV#  = Connection traversing a bonded set of # NVLinks
"""
_P2P_LEGEND = """
Legend:

  X    = Self
  OK   = Status Ok
  CNS  = Chipset not supported
  GNS  = GPU not supported
  TNS  = Topology not supported
  NS   = Not supported
  U    = Unknown
"""


def nvidia_smi_query(machine: Machine, columns: str) -> str:
    """`--query-gpu=COLUMNS --format=csv`."""
    names = columns.split(",")
    heads = [f"{name} [MiB]" if name.startswith("memory.") else name for name in names]
    rows = [", ".join(_column(machine, gpu, name) for name in names) for gpu in machine.gpus]
    return "\n".join([", ".join(heads), *rows]) + "\n"


def _column(machine: Machine, gpu: Gpu, name: str) -> str:
    return {
        "index": str(gpu.index),
        "name": machine.gpu.name,
        "uuid": gpu.uuid,
        "pci.bus_id": f"00000000:{gpu.bus:02X}:00.0",
        "memory.total": f"{machine.gpu.memory_mib} MiB",
        "driver_version": DRIVER,
        "vbios_version": machine.gpu.vbios,
        "serial": gpu.serial if gpu.serial != "N/A" else "[N/A]",
    }[name]


def nvidia_smi_list(machine: Machine) -> str:
    """`-L`."""
    return "".join(f"GPU {gpu.index}: {machine.gpu.name} (UUID: {gpu.uuid})\n" for gpu in machine.gpus)


def nvidia_smi_version() -> str:
    """`--version`."""
    nvml = DRIVER.rpartition(".")[0]
    lines = [("NVIDIA-SMI", DRIVER), ("NVML", nvml), ("DRIVER", DRIVER)]
    return (
        "".join(f"{name:<10} version  : {value}\n" for name, value in lines) + f"CUDA Version        : {DRIVER_CUDA}\n"
    )


def nvidia_smi_topo(machine: Machine) -> str:
    """`topo -m`: tabs, and the header underlined as on a terminal."""
    names = [f"GPU{gpu.index}" for gpu in machine.gpus] + [f"NIC{index}" for index in range(len(machine.rdma))]
    buses = [gpu.bus for gpu in machine.gpus] + [adapter.bus for adapter in machine.rdma]
    gpus = len(machine.gpus)
    lines = ["\t\x1b[4m" + "\t".join(names) + "\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m"]
    for row, name in enumerate(names):
        cells = [
            " X " if row == column else _link(machine, buses, row, column, both_gpus=max(row, column) < gpus)
            for column in range(len(names))
        ]
        numa = machine.gpus[row].numa if row < gpus else 0
        tail = [machine.cpu.cpus_of(numa), str(numa), "", "N/A"] if row < gpus else ["", "", "", ""]
        lines.append("\t".join([name, *cells, *tail]))
    text = "\n".join(lines) + "\n" + _LEGEND
    if machine.rdma:
        text += (
            "\nNIC Legend:\n\n" + "".join(f"  NIC{i}: {each.device}\n" for i, each in enumerate(machine.rdma)) + "\n"
        )
    return text


def _link(machine: Machine, buses: list[int], row: int, column: int, *, both_gpus: bool) -> str:
    if both_gpus and machine.gpu.nvlinks:
        return f"NV{machine.gpu.nvlinks}"
    one, other = buses[row], buses[column]
    if one == other or (machine.root_of(one) == machine.root_of(other) and machine.flat):
        return "PIX"
    if machine.root_of(one) == machine.root_of(other):
        return "PXB"
    return "NODE" if machine.numa_of(one) == machine.numa_of(other) else "SYS"


def nvidia_smi_p2p(machine: Machine) -> str:
    """`topo -p2p r`; a stock driver offers no peer access between consumer cards."""
    names = [f"GPU{gpu.index}" for gpu in machine.gpus]
    status = "OK" if machine.gpu.nvlinks else "CNS"
    lines = [" \t" + "\t".join(names)]
    for row in names:
        lines.append(f" {row}\t" + "\t".join("X" if row == column else status for column in names))
    return "\n".join(lines) + "\n" + _P2P_LEGEND


def nvidia_smi_nvlink(machine: Machine) -> str:
    """`nvlink -s`; cards without links print nothing but their names."""
    return _links(machine, lambda link: [f"\t Link {link}: {machine.gpu.nvlink_gb_s} GB/s"])


def nvidia_smi_nvlink_errors(machine: Machine) -> str:
    """`nvlink -e`."""
    kinds = ("Replay", "Recovery", "CRC")
    return _links(machine, lambda link: [f"\t Link {link}: {kind} Errors: 0" for kind in kinds])


def _links(machine: Machine, lines: Callable[[int], list[str]]) -> str:
    text = ""
    for gpu in machine.gpus:
        text += f"GPU {gpu.index}: {machine.gpu.name} (UUID: {gpu.uuid})\n"
        for link in range(machine.gpu.nvlinks):
            text += "\n".join(lines(link)) + "\n"
    return text


def proc_driver_nvidia() -> str:
    """/proc/driver/nvidia/version of the open modules."""
    built = "(dvs-builder@U22-I3-AE18-28-1)  Tue Sep 23 09:54:13 UTC 2025"
    compiler = "gcc version 11.4.0 (Ubuntu 11.4.0-1ubuntu1~22.04.2)"
    module = f"NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  {DRIVER}  Release Build  {built}"
    return f"{module}\nGCC version:  {compiler}\n"


def fabric_manager() -> str:
    """`nv-fabricmanager --version`."""
    return f"Fabric Manager version is : {DRIVER}\n"
