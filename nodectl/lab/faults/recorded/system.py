"""Recorded faults of processors, memory, kernel settings, services and software."""

from __future__ import annotations

from nodectl.lab.faults.base import Fault
from nodectl.lab.faults.editing import everywhere, once, recorded

FAULTS: tuple[Fault, ...] = (
    recorded(
        "cpu-missing",
        "half of one socket's cores are gone",
        "fleet_cpu",
        once("lscpu", r"^(CPU\(s\): +)\d+", r"\g<1>192"),
        once("lscpu", r"^(Core\(s\) per socket: +)\d+", r"\g<1>48"),
    ),
    recorded(
        "cpu-offline",
        "16 processors are offline",
        "cpu_offline",
        once("lscpu", r"^(On-line CPU\(s\) list: +)0-\d+", r"\g<1>0-239\nOff-line CPU(s) list: 240-255"),
    ),
    recorded(
        "memory-missing",
        "a memory module is gone",
        "fleet_memory",
        once("meminfo", r"^(MemTotal: +)\d+", r"\g<1>1048576000"),
    ),
    recorded(
        "numa-unbalanced",
        "one NUMA node has half of another's memory",
        "memory_balance",
        once("numa", r"^(node1/meminfo:Node 1 MemTotal: +)\d+", r"\g<1>131072000"),
    ),
    recorded(
        "edac-uncorrected",
        "a memory controller counts an error that was not corrected",
        "memory_uncorrected",
        once("memory-errors", r"^(mc1\t.*uncorrected=)0", r"\g<1>1"),
    ),
    recorded(
        "edac-corrected",
        "a memory controller corrects many errors",
        "memory_corrected",
        once("memory-errors", r"^(mc0\tcorrected=)0", r"\g<1>24817"),
    ),
    recorded(
        "governor",
        "the processors save power",
        "cpu_governor",
        once("kernel-knobs", r"^(governor\t)performance", r"\1powersave"),
    ),
    recorded(
        "numa-balancing",
        "the kernel moves memory between NUMA nodes",
        "numa_balancing",
        once("kernel-knobs", r"^(numa_balancing\t)0", r"\g<1>1"),
    ),
    recorded(
        "huge-pages",
        "transparent huge pages are made at any cost",
        "huge_pages",
        once("kernel-knobs", r"always \[madvise\] never", "[always] madvise never"),
        once("kernel-knobs", r"^(transparent_hugepage_defrag\t).*", r"\1[always] defer defer+madvise madvise never"),
    ),
    recorded(
        "kernel-other",
        "one host runs another kernel",
        "fleet_kernel",
        once("uname", r"^(Linux )\S+", r"\g<1>5.15.0-91-generic"),
    ),
    Fault(
        "peermem-missing",
        "the module for RDMA to GPU memory is not loaded",
        ("fleet_modules", "peermem"),
        once("modules", r"^nvidia_peermem .*\n", ""),
    ),
    recorded(
        "service-failed",
        "a service failed",
        "failed_units",
        once("units", r"^system running$", "system degraded\nfailed nvme-health.service"),
    ),
    recorded(
        "persistenced-failed",
        "the persistence daemon ended badly",
        "failed_units",
        once("units", r"^system running$", "system degraded\nfailed nvidia-persistenced.service"),
        once(
            "units",
            r"(Id=nvidia-persistenced\.service\nLoadState=loaded\nActiveState=)active(\nSubState=)running",
            r"\1failed\2failed",
        ),
    ),
    recorded(
        "slurm-drained",
        "Slurm has drained the node",
        "slurm_state",
        once("slurm-node", r"State=IDLE", "State=IDLE+DRAIN Reason=operator:cable_swap"),
    ),
    recorded(
        "slurm-down",
        "Slurm's controller does not hear the node",
        "slurm_state",
        once("slurm-node", r"State=IDLE", "State=DOWN*"),
    ),
    recorded(
        "unit-limits",
        "a service may lock only 8 MiB of memory",
        "unit_limits",
        once("unit-limits", r"^(DefaultLimitMEMLOCKSoft=)infinity", r"\g<1>8388608"),
    ),
    recorded(
        "wrong-driver",
        "one host runs another driver",
        "fleet_driver",
        everywhere("proc-driver-nvidia", r"580\.95\.05", "580.65.06"),
        everywhere("nvidia-smi-q", r"(Driver Version +: )\S+", r"\g<1>580.65.06"),
        everywhere("nvidia-smi-query", r"580\.95\.05", "580.65.06"),
        everywhere("driver-installed", r"\S+", "580.65.06"),
        everywhere("nvidia-smi-version", r"580\.95(?:\.05)?", "580.65.06"),
        everywhere("fabric-manager", r"580\.95\.05", "580.65.06"),
    ),
    recorded(
        "driver-not-loaded",
        "another driver is installed than runs",
        "driver_pending",
        everywhere("driver-installed", r"\S+", "580.105.08"),
    ),
    recorded(
        "torch-other",
        "one host has another torch",
        "versions",
        once("venv", r"torch-2\.9\.1", "torch-2.8.0"),
    ),
    recorded(
        "nccl-other",
        "one host loads another NCCL",
        "versions",
        once("venv", r"(nvidia_nccl_cu12-)[\d.]+", r"\g<1>2.26.2"),
        once("venv", r"(nccl_loaded )[\d.]+", r"\g<1>2.26.2"),
    ),
)
