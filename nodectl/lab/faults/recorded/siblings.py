"""Recorded faults by which a host, or one of its parts, is not as its siblings; and hosts that are there twice.

A row is a kind: its name, what it is, the checks of which one has to find it, the command whose text is another one,
the place in it, and what stands there then.
"""

from __future__ import annotations

import json

from nodectl.lab.faults.base import Edit, Fault, Output, Outputs
from nodectl.lab.faults.editing import CannotEditError, gpu, of_peer, once, says, text_of, with_text

_UNIT = r"(Id={}\.service\nLoadState=loaded\nActiveState=)active(\nSubState=)running"
_STUCK = "process D 91827{} nfs_wait_bit_killable 4211 python3\n"
_ROW = r"^(GPU{}\t.*\t)[\d,-]+\t\d+"

# fmt: off
_TEXTS: tuple[tuple[str, str, str, str, str, str], ...] = (
    # mounts: what a lab host has of its recording is an empty file system of the same source
    ("mount-nfs", "an NFS folder that the others have is not mounted", "fleet_mounts", "mounts", r"^nas01:.*\n", ""),
    ("mount-lustre", "Lustre is not mounted", "fleet_mounts", "mounts", r"^\S+@o2ib:/\S+ .*\n", ""),
    ("mount-disk", "the disk for data is not mounted", "fleet_mounts", "mounts",
     r"^/dev/\S+ /(?:raid|srv/nodectl) (?:ext4|xfs) .*\n", ""),
    ("mount-server", "an NFS folder comes from another server", "fleet_mounts", "mounts", r"^nas01:", "nas02:"),
    ("mount-read-only", "an NFS folder is mounted read-only", "fleet_mounts", "mounts", r"^(nas01:\S+ \S+ \S+ )rw",
     r"\1ro"),
    ("mount-left", "one host still has a folder of a server that is gone", "fleet_mounts", "mounts", r"\A",
     "nas00:/old /mnt/old nfs4 rw,hard,vers=4.2 0 0\n"),
    ("tmp-noexec", "nothing may be run in /tmp", "noexec", "mounts", r"\Z",
     "tmpfs /tmp tmpfs rw,nosuid,nodev,noexec 0 0\n"),
    # room
    ("root-used", "96 % of the root file system is in use", "disk", "df", r"\d+% /$", "96% /"),
    ("log-full", "the file system of the journal is full", "disk", "df", r"^.*% /\n(?=Filesystem +Inodes)",
     "/dev/md2 20466256 20466256 0 100% /var/log\n"),
    ("shm-left", "ended jobs have filled /dev/shm", "shm_free", "df-shm", r"^(\S+ +)(\d+) +\d+ +\d+ +\d+%",
     r"\g<1>\g<2> \g<2> 4096 100%"),
    ("memory-taken", "hardly any memory is available", "memory_available", "meminfo", r"^(MemAvailable: +)\d+",
     r"\g<1>4194304"),
    ("swap-used", "half of the swap is in use", "swap", "meminfo", r"^SwapTotal: +\d+ kB\nSwapFree: +\d+",
     "SwapTotal:      33554428 kB\nSwapFree:       16777214"),
    # processes and services
    ("stuck-nvidia-smi", "one nvidia-smi waits for the driver without end", "stuck_processes", "processes",
     r"^(?=count )",
     "process D 918274 rm_semaphore_wait 612 nvidia-smi\n"),
    ("stuck-processes", "six processes wait for a file system", "stuck_processes", "processes", r"^(?=count )",
     "".join(map(_STUCK.format, range(6)))),
    ("zombies", "120 dead children that nobody waits for", "zombies", "processes", r"^(?=count )",
     "".join(f"process Z 5{number:05} - 9000 python3 <defunct>\n" for number in range(120))),
    ("slurmd-ended", "slurmd has ended, and nothing failed", "unit_stopped", "units", _UNIT.format("slurmd"),
     r"\1inactive\2dead"),
    ("munge-ended", "munge has ended, by which Slurm knows its nodes", "unit_stopped", "units", _UNIT.format("munge"),
     r"\1inactive\2dead"),
    ("chrony-ended", "nothing keeps the clock any more", "fleet_services", "units", _UNIT.format("chrony"),
     r"\1inactive\2dead"),
    ("docker-masked", "the container engine is masked on one host", "fleet_services", "units",
     r"(Id=docker\.service\nLoadState=)loaded(\nActiveState=)active(\nSubState=)running(\nUnitFileState=)enabled",
     r"\1masked\2inactive\3dead\4masked"),
    ("upgrades-running", "packages are upgraded under running jobs", "automatic_upgrades", "units",
     r"(Id=unattended-upgrades\.service\nLoadState=)not-found(\nActiveState=)inactive(\nSubState=)dead(\nUnitFileState=)",
     r"\1loaded\2active\3running\4enabled"),
    ("remove-ipc", "logind removes the shared memory of who logs out", "remove_ipc", "unit-limits",
     r"^(RemoveIPC=b )false", r"\1true"),
    # the system
    ("glibc-other", "one host has an older C library", "fleet_glibc", "userland", r"^glibc .*", "glibc 2.31"),
    ("time-zone-other", "one host has another time zone", "fleet_time_zone", "userland", r"^zone .*\noffset .*",
     "zone Europe/Berlin\noffset +0200"),
    ("os-other", "one host has another release of the distribution", "fleet_os", "os-release", r"22\.04\.\d",
     "22.04.1"),
    ("smt-off", "one host has a thread a core", "fleet_kernel_knobs", "kernel-knobs", r"^(smt\t)on", r"\1off"),
    ("clock-slow", "the kernel reads the time by HPET", "clocksource", "kernel-knobs", r"^(clocksource\t)tsc",
     r"\1hpet"),
    ("iommu-on", "the IOMMU translates what goes between devices", "iommu", "kernel-knobs",
     r"(?s)iommu=pt (.*iommu_groups\t)0", r"\g<1>143"),
    ("taint", "the kernel has gone through an oops", "kernel_taint", "kernel-knobs", r"^(taint\t)\d+", r"\g<1>4224"),
    ("command-line", "one host's kernel was started with another option", "fleet_kernel_knobs", "kernel-knobs",
     r"^(cmdline\t.*)$", r"\1 pcie_aspm=force"),
    ("iommu-groups", "one host's devices are in groups of the IOMMU", "fleet_kernel_knobs", "kernel-knobs",
     r"^(iommu_groups\t)\d+", r"\g<1>88"),
    ("frequency-driver", "one host's clocks are set by the older driver", "fleet_kernel_knobs", "kernel-knobs",
     r"^(frequency_driver\t)\S+", r"\1acpi-cpufreq-old"),
    ("idle-driver", "one host's processors sleep by another driver", "fleet_kernel_knobs", "kernel-knobs",
     r"^(idle_driver\t)\S+", r"\1none"),
    ("service-not-enabled", "a boot does not start slurmd on one host", "fleet_services_at_boot", "units",
     r"(Id=slurmd\.service\nLoadState=loaded\nActiveState=\w+\nSubState=\w+\nUnitFileState=)enabled", r"\1disabled"),
    ("nvme-missing", "one host has an NVMe disk less", "fleet_nvme_disks", "firmware", r"^nvme\t.*\n", ""),
    ("nvme-other", "one host has an NVMe disk of another model", "fleet_nvme_disks", "firmware", r"^nvme\t[^\t]+",
     "nvme\tMicron_7450_MTFDKCC3T8TFR"),
    ("huge-pages-kept", "one host keeps 64 GiB for huge pages", "fleet_huge_pages", "meminfo", r"^(Hugetlb: +)0",
     r"\g<1>67108864"),
    ("shm-size", "one host's /dev/shm is small", "fleet_shm", "df-shm", r"^(\S+ +)\d+ +0 +\d+",
     r"\g<1>67108864 0 67108864"),
    ("uvm-missing", "the module for managed GPU memory is not loaded", "fleet_modules", "modules", r"^nvidia_uvm .*\n",
     ""),
    # libraries
    ("library-nccl", "one host has an NCCL of its own where programs look", "fleet_libraries", "loaded-libraries",
     r"\Z",
     "/usr/local/lib/libnccl.so.2\t/usr/local/lib/libnccl.so.2.18.3\n"),
    ("library-missing", "RDMA's library is not installed", "fleet_libraries", "loaded-libraries", r"^.*libibverbs.*\n",
     ""),
    ("library-other", "RDMA's library is an older one", "fleet_libraries", "loaded-libraries",
     r"(libibverbs\.so)\.1\.[\d.]+$", r"\1.1.11.32.0"),
    ("python-other", "the environment has another Python", "fleet_python", "venv", r"^python .*", "python 3.12.3"),
    # GPUs and adapters
    ("gpu-nic-path", "an adapter is further from a GPU than on the others", "fleet_gpu_nic_path", "nvidia-smi-topo",
     r"^(GPU0\t.*?\t)(?:PXB|PIX)", r"\1NODE"),
    ("gpu-processors", "a GPU is near to other processors than on the others", "fleet_gpu_affinity", "nvidia-smi-topo",
     _ROW.format(3), r"\g<1>0-1\t0"),
    ("gpu-no-numa", "a GPU is on no NUMA node", "gpu_affinity", "nvidia-smi-topo", _ROW.format(3), r"\1\t"),
    ("ib-other-manager", "a port has another subnet manager", "fleet_ib_manager", "ib-sysfs",
     r"^(mlx5_\d+/ports/1/sm_lid:)0x1$", r"\g<1>0x2f"),
    ("ib-other-subnet", "a port is in another InfiniBand subnet", "fleet_ib_prefix", "ib-sysfs",
     r"^(mlx5_0/ports/1/gids/0:)fe80:0000:0000:0000", r"\1fec0:0000:0000:0002"),
    ("ib-small-mtu", "a port has half of the packet size", "ib_mtu", "ibv-devinfo", r"^(\s+active_mtu:\s+)4096 \(5\)",
     r"\g<1>2048 (4)"),
    ("ib-one-firmware", "one of a host's adapters has older firmware", "fleet_ib_firmware", "ib-sysfs",
     r"^(mlx5_\d+/fw_ver:)[\d.]+",
     r"\g<1>20.35.1012"),
)

# fields of one GPU in `nvidia-smi -q`
_GPUS: tuple[tuple[str, str, str, int, str, str], ...] = (
    ("gpu-slow-link", "a GPU's link is of the first generation at full speed", "fleet_gpu_pcie_gen", 2,
     "GPU Link Info/PCIe Generation/Current", "1"),
    ("gpu-sm-clock", "a GPU may not clock as high as the others", "fleet_gpu_sm_clock", 1, "Max Clocks/SM", "1155 MHz"),
    ("gpu-memory-clock", "a GPU's memory is slower than the others'", "fleet_gpu_memory_clock", 4, "Max Clocks/Memory",
     "1215 MHz"),
    ("gpu-bar1", "a GPU shows peers 256 MiB of its memory", "fleet_gpu_bar1", 6, "BAR1 Memory Usage/Total", "256 MiB"),
    ("gpu-power-max", "a GPU's firmware allows it less power", "fleet_gpu_power_max", 0,
     "GPU Power Readings/Max Power Limit", "300.00 W"),
    ("gpu-throttled", "heat has slowed a GPU for an hour", "fleet_gpu_throttled", 3,
     "Clocks Event Reasons Counters/HW Thermal Slowdown", "3612000000 us"),
    ("gpu-warm", "the driver has slowed a GPU for its heat, on and off", "fleet_gpu_throttled", 5,
     "Clocks Event Reasons Counters/SW Thermal Slowdown", "241000000 us"),
    ("gpu-host-max", "a GPU's slot is of an older generation than its siblings'", "fleet_gpu_pcie_host", 5,
     "PCI/GPU Link Info/PCIe Generation/Host Max", "3"),
    ("gpu-power-default", "a GPU is given less power by default", "fleet_gpu_power_default", 2,
     "GPU Power Readings/Default Power Limit", "250.00 W"),
    ("gpu-fabric-status", "a GPU joined the NVLink fabric without success", "gpu_fabric", 3, "Fabric/Status",
     "Insufficient Resources"),
    ("gpu-fabric-clique", "a GPU is in another clique of the NVLink fabric", "gpu_fabric", 6, "Fabric/CliqueId", "7"),
    ("gpu-channel-repair", "a memory channel waits for its repair", "gpu_channel_repair", 2,
     "ECC Errors/Channel Repair Pending", "Yes"),
    ("gpu-tpc-repair", "a processing cluster waits for its repair", "gpu_tpc_repair", 2,
     "ECC Errors/TPC Repair Pending", "Yes"),
    ("gpu-memory-held", "memory of a GPU is in use by no process", "gpu_memory_held", 7, "FB Memory Usage/Used",
     "30212 MiB"),
    ("gpu-display", "a display is driven by a GPU", "gpu_display", 0, "Display Active", "Enabled"),
    ("gpu-rows-used", "600 rows are remapped", "gpu_remapped_rows", 1, "Remapped Rows/Uncorrectable Error", "600"),
    ("gpu-sram-corrected", "a GPU corrects very many errors of its caches", "gpu_sram_corrected", 3,
     "ECC Errors/Aggregate/SRAM Correctable", "61234"),
)
# fmt: on


def _interface(change: dict[str, object] | None) -> Edit:
    """The last interface that has an IPv4 address of a private network has another one; None: it is gone."""

    def edit(outputs: Outputs) -> dict[str, Output]:
        rows = json.loads(text_of(outputs, "ip-address"))
        found = [
            row for row in rows if any(each.get("local", "").startswith("10.") for each in row.get("addr_info", []))
        ]
        if not found:
            raise CannotEditError("ip-address of this recording has no private address")
        if change is None:
            rows.remove(found[-1])
        else:
            found[-1]["addr_info"] = [{**each, **change} for each in found[-1]["addr_info"] if each["family"] == "inet"]
        return with_text(outputs, "ip-address", f"{json.dumps(rows)}\n")

    return edit


FAULTS: tuple[Fault, ...] = (
    *(Fault(name, about, (check,), once(key, at, then)) for name, about, check, key, at, then in _TEXTS),
    *(Fault(name, about, (check,), gpu(number, (path, value))) for name, about, check, number, path, value in _GPUS),
    Fault("nic-gone", "an interface is not there any more", ("fleet_nics",), _interface(None)),
    Fault("netmask-other", "an interface has a wider netmask", ("fleet_netmask",), _interface({"prefixlen": 13})),
    Fault("subnet-other", "an interface is in another network", ("fleet_subnet",), _interface({"local": "10.250.7.9"})),
    Fault(
        "toolkit-missing",
        "the container toolkit is not installed",
        ("fleet_container_toolkit",),
        says(["container-toolkit"], exit_status=3),
    ),
    Fault(
        "clone-memory",
        "a host was restored from another one's memory: its boot has the same id",
        ("fleet_duplicate",),
        of_peer("boot"),
        takes_two=True,
    ),
    Fault(
        "clone-serial",
        "a host has another one's serial number",
        ("fleet_duplicate",),
        of_peer("host-serial"),
        takes_two=True,
    ),
    Fault(
        "clone-gpus",
        "two hosts show the same GPUs",
        ("fleet_duplicate",),
        of_peer("nvidia-smi-q", "nvidia-smi-query"),
        takes_two=True,
    ),
    Fault(
        "clone-guids",
        "two hosts' adapters have the same GUIDs",
        ("fleet_duplicate",),
        of_peer("ib-sysfs", "ibstat", "ibv-devinfo", "show-gids", "rdma-link"),
        takes_two=True,
    ),
    Fault(
        "twice",
        "one machine is in the inventory by two names",
        ("fleet_duplicate",),
        of_peer("boot", "host-serial", "nvidia-smi-q", "nvidia-smi-query"),
        takes_two=True,
    ),
)
