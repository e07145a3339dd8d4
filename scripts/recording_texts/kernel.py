"""What the kernel of a machine shows: processors, memory, log, settings, devices in sysfs."""

from __future__ import annotations

import zlib

from .machines import DRIVER, Machine

RELEASE = "5.15.0-157-generic"
BUILD = "#167-Ubuntu SMP Wed Sep 17 21:35:53 UTC 2025"


def lscpu(machine: Machine) -> str:
    """In the C locale."""
    cpu = machine.cpu
    rows: dict[str, object] = {
        "Architecture": "x86_64",
        "CPU op-mode(s)": "32-bit, 64-bit",
        "Byte Order": "Little Endian",
        "CPU(s)": 2 * cpu.cores,
        "On-line CPU(s) list": f"0-{2 * cpu.cores - 1}",
        "Vendor ID": cpu.vendor,
        "Model name": cpu.model,
        "CPU family": cpu.family,
        "Model": cpu.number,
        "Thread(s) per core": 2,
        "Core(s) per socket": cpu.cores_a_socket,
        "Socket(s)": cpu.sockets,
        "Stepping": cpu.stepping,
        "CPU max MHz": f"{cpu.mhz}.0000",
        "CPU min MHz": f"{cpu.min_mhz}.0000",
        "NUMA node(s)": cpu.numa_nodes,
    }
    rows |= {f"NUMA node{node} CPU(s)": cpu.cpus_of(node) for node in range(cpu.numa_nodes)}
    width = max(map(len, rows)) + 2
    return "".join(f"{f'{key}:':<{width}}{value}\n" for key, value in rows.items())


def numa(machine: Machine) -> str:
    """FILE:LINE, as the collector's grep prints them."""
    nodes = machine.cpu.numa_nodes
    a_socket = nodes // machine.cpu.sockets
    size_kib = _total_kib(machine) // nodes
    files: list[str] = [f"node{node}/cpulist:{machine.cpu.cpus_of(node)}" for node in range(nodes)]
    for node in range(nodes):
        near = [10 if other == node else 12 if other // a_socket == node // a_socket else 32 for other in range(nodes)]
        files.append(f"node{node}/distance:{' '.join(map(str, near))}")
    for node in range(nodes):
        for name, kib in (("MemTotal", size_kib), ("MemFree", size_kib - 3_100_000 - 1024 * node)):
            files.append(f"node{node}/meminfo:Node {node} {f'{name}:':<15}{kib} kB")
    return "\n".join(files) + "\n"


def _total_kib(machine: Machine) -> int:
    # the firmware and the kernel keep about 1.6 %
    nodes = machine.cpu.numa_nodes
    return round(machine.memory_gib * 2**20 * 0.984) // nodes * nodes


def meminfo(machine: Machine) -> str:
    """/proc/meminfo, its main fields."""
    total = _total_kib(machine)
    rows = {
        "MemTotal": total,
        "MemFree": round(total * 0.93),
        "MemAvailable": round(total * 0.96),
        "Buffers": 412_388,
        "Cached": round(total * 0.03),
        "SwapCached": 0,
        "SwapTotal": 0,
        "SwapFree": 0,
        "Dirty": 1204,
        "Shmem": 92_540,
        "Slab": 6_118_204,
        "CommitLimit": total // 2,
        "Committed_AS": 9_830_400,
        "Hugepagesize": 2048,
        "Hugetlb": 0,
    }
    return "".join(f"{f'{key}:':<16}{value:>12} kB\n" for key, value in rows.items()) + "HugePages_Total:       0\n"


def memory_errors(machine: Machine) -> str:
    """EDAC: a memory controller a NUMA node, without an error."""
    kind = "Skylake" if "Xeon" in machine.cpu.model else "F17h_M30h"
    size_mib = machine.memory_gib * 1024 // machine.cpu.numa_nodes
    return "".join(
        f"mc{node}\tcorrected=0\tuncorrected=0\tsize_mib={size_mib}\tkind={kind}\n"
        for node in range(machine.cpu.numa_nodes)
    )


def knobs(machine: Machine) -> str:
    """Settings that are no sysctl."""
    amd = "AMD" in machine.cpu.model
    rows = [
        ("cmdline", f"BOOT_IMAGE=/vmlinuz-{RELEASE} root=/dev/md0 ro iommu=pt numa_balancing=disable quiet"),
        ("transparent_hugepage", "always [madvise] never"),
        ("transparent_hugepage_defrag", "always defer defer+madvise [madvise] never"),
        ("numa_balancing", "0"),
        ("taint", "4096"),
        ("smt", "on"),
        ("frequency_driver", "acpi-cpufreq" if amd else "intel_pstate"),
        ("idle_driver", "acpi_idle" if amd else "intel_idle"),
        ("clocksource", "tsc"),
        ("governor", f"performance\t{2 * machine.cpu.cores}"),
        ("iommu_groups", "0"),
    ]
    return "".join(f"{name}\t{value}\n" for name, value in rows)


def modules(machine: Machine) -> str:
    """/proc/modules: what training needs, and some company."""
    names = ["nvidia_uvm", "nvidia_drm", "nvidia_modeset", "nvidia", "nvme", "nvme_core", "ext4", "jbd2", "igb"]
    names += [
        "nvidia_peermem",
        "ib_ipoib",
        "ib_umad",
        "rdma_ucm",
        "mlx5_ib",
        "ib_uverbs",
        "ib_core",
        "mlx5_core",
    ] * bool(machine.rdma)
    return "".join(
        f"{name} {16384 + zlib.crc32(name.encode()) % 2**20 // 4096 * 4096} 0 - Live 0x0000000000000000\n"
        for name in names
    )


def boot() -> str:
    """The boot's id, and the seconds since."""
    return "5c1c0a6e-3b0a-4c43-9a52-6f0f1e2d4b7a\n1296042.31 328817264.10\n"


def dmesg(machine: Machine) -> str:
    """A boot without trouble."""
    lines = [
        (0.0, f"Linux version {RELEASE} (buildd@lcy02-amd64-086) {BUILD}"),
        (0.0, f"Command line: BOOT_IMAGE=/vmlinuz-{RELEASE} root=/dev/md0 ro iommu=pt numa_balancing=disable quiet"),
        (1.482, f"smp: Brought up {machine.cpu.numa_nodes} nodes, {2 * machine.cpu.cores} CPUs"),
        (3.917, "EDAC MC: Ver: 3.0.0"),
    ]
    moment = 8.1
    for each in machine.rdma:
        moment += 0.9
        pci = f"0000:{each.pci}"
        model = machine.adapter
        gts = {4: ("252.048", "16.0"), 5: ("504.112", "32.0")}[model.pcie_gen]
        lines += [
            (moment, f"mlx5_core {pci}: firmware version: {model.firmware}"),
            (moment + 0.01, f"mlx5_core {pci}: {gts[0]} Gb/s available PCIe bandwidth ({gts[1]} GT/s PCIe x16 link)"),
        ]
    lines += [
        (22.406, f"nvidia-nvlink: Nvlink Core is being initialized, major device number {234 + len(machine.gpus)}"),
        (22.981, f"NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  {DRIVER}  Release Build"),
        (23.337, f"nvidia-modeset: Loading NVIDIA UNIX Open Kernel Mode Setting Driver for x86_64  {DRIVER}"),
        (24.052, "[drm] [nvidia-drm] [GPU ID 0x00000000] Loading driver"),
        (31.118, f"{machine.management.netdev}: link becomes ready"),
    ]
    return "".join(f"[{moment:12.6f}] {text}\n" for moment, text in lines)


def pci_tree(machine: Machine, lspci_text: str) -> str:
    """Where each device's link in /sys/bus/pci/devices leads: through all bridges above it."""
    addresses: list[str] = []
    behind: dict[int, str] = {}
    for line in lspci_text.splitlines():
        if line[:1].isdigit():
            addresses.append(line.split(" ", 1)[0])
        elif "secondary=" in line:
            behind[int(line.partition("secondary=")[2][:2], 16)] = addresses[-1]

    def path(address: str) -> str:
        bus = int(address[5:7], 16)
        above = behind.get(bus)
        return f"{path(above)}/{address}" if above else f"../../../devices/pci0000:{bus:02x}/{address}"

    return "".join(f"{path(address)}\n" for address in sorted(addresses))
