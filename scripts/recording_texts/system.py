"""What the system above the kernel shows: versions, file systems, units, limits, processes."""

from __future__ import annotations

import yaml

from nodectl.common.resources import profiles_dir

from .kernel import RELEASE
from .machines import DRIVER, HOST, STACK, Machine

VENV = "/opt/nodectl/venv"
# the versions of the stack profile that the recordings name
_STACK = yaml.safe_load((profiles_dir() / "stack" / f"{STACK}.yml").read_text(encoding="utf-8"))
_ACTIVE = ("nvidia-persistenced", "chrony", "ssh", "docker", "containerd")
_SHM = "/dev/shm"  # noqa: S108 - a text
_MANAGED = ("nvidia-fabricmanager", "slurmd", "munge", "openibd")
_ONCE = "openibd"


def os_release() -> str:
    """/etc/os-release."""
    return (
        'PRETTY_NAME="Ubuntu 22.04.5 LTS"\nNAME="Ubuntu"\nVERSION_ID="22.04"\nVERSION="22.04.5 LTS (Jammy Jellyfish)"\n'
        "VERSION_CODENAME=jammy\nID=ubuntu\nID_LIKE=debian\nUBUNTU_CODENAME=jammy\n"
    )


def uname() -> str:
    """`uname -srm`."""
    return f"Linux {RELEASE} x86_64\n"


def venv() -> str:
    """The collector's own form of the launcher's Python environment."""
    wheels = (
        f"torch-{_STACK['torch']}+{_STACK['index']}",
        f"nvidia_cuda_runtime_cu12-{_STACK['cuda']}.90",
        f"nvidia_cudnn_cu12-{_STACK['cudnn']}",
        f"nvidia_nccl_cu12-{_STACK['nccl']}",
    )
    rows = [
        ("venv", VENV),
        ("python", "3.11.14"),
        *(("wheel", wheel) for wheel in wheels),
        ("nccl_loaded", _STACK["nccl"]),
        ("cuda", _STACK["cuda"]),
    ]
    return "".join(f"{name} {value}\n" for name, value in rows)


def libraries() -> str:
    """The dynamic linker's: path, and where its link leads."""
    folder = "/lib/x86_64-linux-gnu"
    names = [("libcuda.so.1", f"libcuda.so.{DRIVER}"), ("libnvidia-ml.so.1", f"libnvidia-ml.so.{DRIVER}")]
    names += [("libibverbs.so.1", "libibverbs.so.1.14.39.0")]
    return "".join(f"{folder}/{link}\t/usr{folder}/{real}\n" for link, real in names)


def file_systems(machine: Machine) -> dict[str, str]:
    """df and mounts agree."""
    head = "Filesystem     1024-blocks      Used Available Capacity Mounted on\n"
    inodes = "Filesystem         Inodes  IUsed     IFree IUse% Mounted on\n"
    shm_kib = machine.memory_gib * 2**19
    root = "/dev/md0        1844284980 214839244 1535687500      13% /\n"
    used = "/dev/md0        117145600 812344 116333256    1% /\n"
    mounts = [
        ("/dev/md0", "/", "ext4", "rw,relatime,errors=remount-ro"),
        ("proc", "/proc", "proc", "rw,nosuid,nodev,noexec,relatime"),
        ("sysfs", "/sys", "sysfs", "rw,nosuid,nodev,noexec,relatime"),
        ("tmpfs", _SHM, "tmpfs", "rw,nosuid,nodev,inode64"),
        ("tmpfs", "/run", "tmpfs", "rw,nosuid,nodev,noexec,relatime,mode=755,inode64"),
        ("/dev/nvme0n1p1", "/boot/efi", "vfat", "rw,relatime,fmask=0077,dmask=0077"),
    ]
    return {
        "df": f"/root/.local/state/nodectl\n{head}{root}{root}{inodes}{used}{used}",
        "df-shm": f"{head}tmpfs {shm_kib:>20} 0 {shm_kib} 0% {_SHM}\n",
        "mounts": "".join(f"{source} {target} {kind} {options} 0 0\n" for source, target, kind, options in mounts),
    }


def units(machine: Machine, names: tuple[str, ...]) -> str:
    """systemd's word on the units that are asked for, in their order."""
    managed = _MANAGED if machine.nvswitches else ()
    text = "system running\n"
    blocks = []
    for name in names:
        there = name in (*_ACTIVE, *managed)
        running = ["loaded", "active", "exited" if name == _ONCE else "running", "enabled"]
        state = running if there else ["not-found", "inactive", "dead", ""]
        keys = ("LoadState", "ActiveState", "SubState", "UnitFileState")
        fields = {"Id": f"{name}.service", **dict(zip(keys, state, strict=True)), "Result": "success"}
        blocks.append("".join(f"{key}={value}\n" for key, value in fields.items()))
    return text + "\n".join(blocks)


def unit_limits() -> str:
    """What a unit gets where it says nothing itself."""
    soft = {"MEMLOCK": "infinity", "NOFILE": "1048576", "STACK": "8388608", "NPROC": "8253440"}
    text = "".join(f"DefaultLimit{name}Soft={value}\n" for name, value in soft.items())
    return f"{text}DefaultTasksMax=1238016\nRemoveIPC=b false\n"


def session_limits() -> str:
    """memlock, nofile and stack, soft and hard; and all capabilities."""
    return "unlimited\nunlimited\n1048576\n1048576\n8192\nunlimited\ncap 000001ffffffffff\n"


def slurm_node(machine: Machine) -> str:
    """`scontrol --oneliner show node`."""
    cpus, mib = 2 * machine.cpu.cores, machine.memory_gib * 1000
    gres = f"gpu:{machine.gpu.name.split()[1].split('-')[0].lower()}:{len(machine.gpus)}"
    return (
        f"NodeName={HOST} Arch=x86_64 CoresPerSocket={machine.cpu.cores_a_socket} CPUAlloc=0 CPUEfctv={cpus} "
        f"CPUTot={cpus} CPULoad=0.08 AvailableFeatures=(null) ActiveFeatures=(null) Gres={gres} "
        f"NodeAddr={HOST} NodeHostName={HOST} Version=23.11.10 OS=Linux {RELEASE} RealMemory={mib} AllocMem=0 "
        f"FreeMem={mib - 60_000} Sockets={machine.cpu.sockets} Boards=1 State=IDLE ThreadsPerCore=2 TmpDisk=0 Weight=1 "
        f"Owner=N/A MCS_label=N/A Partitions=train BootTime=2026-09-27T08:00:12 SlurmdStartTime=2026-09-27T08:01:40\n"
    )


def processes() -> str:
    """The load, no hanging process, and how many there are."""
    return "load 0.42 0.37 0.31 1/2214 918273\ncount 1874\n"


def listening() -> str:
    """`ss -ltnH`."""
    ports = [("*", 22), ("[::]", 22), ("127.0.0.53%lo", 53)]
    return "".join(f"LISTEN 0      128    {f'{address}:{port}':>20}    *:*\n" for address, port in ports)


_SYSCTL = {
    "net/core/rmem_max": "212992", "net/core/wmem_max": "212992", "net/core/rmem_default": "212992",
    "net/core/wmem_default": "212992", "net/core/netdev_max_backlog": "1000", "net/core/somaxconn": "4096",
    "net/core/default_qdisc": "fq_codel", "net/core/busy_poll": "0", "net/ipv4/tcp_rmem": "4096 131072 6291456",
    "net/ipv4/tcp_wmem": "4096 16384 4194304", "net/ipv4/tcp_mem": "18874368 25165824 37748736",
    "net/ipv4/tcp_congestion_control": "cubic", "net/ipv4/tcp_mtu_probing": "0",
    "net/ipv4/tcp_slow_start_after_idle": "1", "net/ipv4/tcp_window_scaling": "1",
    "net/ipv4/tcp_max_syn_backlog": "4096", "net/ipv4/tcp_timestamps": "1", "net/ipv4/tcp_sack": "1",
    "net/ipv4/ip_local_port_range": "32768 60999", "net/ipv4/conf/all/rp_filter": "2",
    "net/ipv4/conf/all/arp_ignore": "0", "net/ipv4/neigh/default/gc_thresh1": "128",
    "net/ipv4/neigh/default/gc_thresh2": "512", "net/ipv4/neigh/default/gc_thresh3": "1024", "vm/swappiness": "60",
    "vm/zone_reclaim_mode": "0", "vm/overcommit_memory": "0", "vm/max_map_count": "65530",
    "vm/min_free_kbytes": "90112",
    "vm/dirty_ratio": "20", "vm/dirty_background_ratio": "10", "vm/nr_hugepages": "0", "kernel/numa_balancing": "0",
    "kernel/pid_max": "4194304", "kernel/threads-max": "16506880", "kernel/shmmax": "18446744073692774399",
    "kernel/panic_on_oops": "0", "fs/file-max": "9223372036854775807", "fs/nr_open": "1048576",
    "fs/inotify/max_user_watches": "1048576", "fs/inotify/max_user_instances": "128", "fs/aio-max-nr": "65536",
}  # fmt: skip


def sysctl(paths: tuple[str, ...]) -> str:
    """The collector's own form: path, why it is fixed (here never), value."""
    return "".join(f"{path} - {_SYSCTL[path]}\n" for path in paths)
