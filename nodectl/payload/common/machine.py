"""Readings of this host: processors, NUMA nodes, caches, free memory, and what nvidia-smi prints."""

import os
import platform
import re
import resource
from pathlib import Path
from typing import Dict, Iterable, List, NamedTuple, Optional, Sequence, Set

CPU = Path("/sys/devices/system/cpu")
NODES = Path("/sys/devices/system/node")
PCI = Path("/sys/bus/pci/devices")
# arrays that no cache can hold, and that leave the host most of its memory
TIMES_CACHE = 4
FREE_PART = 4
MIB = 1 << 20
LEAST_BYTES = 8 * MIB
MOST_BYTES = 4096 * MIB
# where sysfs tells of no cache
CACHE_BYTES = 32 * MIB
_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_SMI_S = 60.0
# of the first line, which is not to be waited for
_FIRST_LINE_S = 5.0


class Scope(NamedTuple):
    """Processors to be used together: all (`numa` is None), or those of one NUMA node."""

    numa: Optional[int]
    cpus: List[int]


def scopes() -> List[Scope]:
    """All processors, and each NUMA node if there are several."""
    cores = one_a_core(sorted(os.sched_getaffinity(0)))
    nodes = []
    for path in sorted(NODES.glob("node[0-9]*"), key=lambda folder: int(folder.name[4:])):
        node_cores = set(cpu_list(text(path / "cpulist"))) & set(cores)
        if node_cores:
            nodes.append(Scope(int(path.name[4:]), sorted(node_cores)))
    return [Scope(None, cores)] + (nodes if len(nodes) > 1 else [])


def one_a_core(cpus: List[int]) -> List[int]:
    """Return the first thread of each core: a second one adds no bandwidth."""
    chosen: List[int] = []
    seen: Set[int] = set()
    for cpu in cpus:
        siblings = cpu_list(text(CPU / ("cpu%d" % cpu) / "topology/thread_siblings_list")) or [cpu]
        if not seen & set(siblings):
            chosen.append(cpu)
            seen |= set(siblings)
    return chosen


def cache_bytes(cpus: Iterable[int]) -> int:
    """Return the last-level caches of these processors together."""
    sizes: Dict[str, int] = {}
    for cpu in cpus:
        levels = {}
        for path in (CPU / ("cpu%d" % cpu) / "cache").glob("index[0-9]*"):
            size = re.fullmatch(r"(\d+)([KMG]?)", text(path / "size"))
            if size and text(path / "type") in ("Unified", "Data"):
                level = number(path / "level") or 0
                shared = "%d:%s" % (level, text(path / "shared_cpu_list"))
                levels[level] = (shared, int(size[1]) * _UNITS.get(size[2], 1))
        if levels:
            shared, size_bytes = levels[max(levels)]
            sizes[shared] = size_bytes
    return sum(sizes.values()) or CACHE_BYTES


def array_bytes(cache: int, arrays: int) -> int:
    """How large each of so many arrays may be."""
    free = (available_bytes() or LEAST_BYTES) // FREE_PART // arrays
    return max(LEAST_BYTES, min(TIMES_CACHE * cache, free, MOST_BYTES))


def available_bytes() -> Optional[int]:
    """Return what can be had without swapping, by the kernel's word and this process's control group."""
    match = re.search(r"^MemAvailable:\s+(\d+) kB", text(Path("/proc/meminfo")), re.MULTILINE)
    machine_left = int(match[1]) * 1024 if match else None
    return min((left for left in (machine_left, _group_left(), _limit_left()) if left is not None), default=None)


def _group_left() -> Optional[int]:
    """Return what is left of the tightest memory limit on the way up from this process's group (cgroup 2, or 1)."""
    left = []
    for line in text(Path("/proc/self/cgroup")).splitlines():
        _, controllers, place = line.split(":", 2)
        if controllers == "":
            top, limit, used = Path("/sys/fs/cgroup"), "memory.max", "memory.current"
        elif "memory" in controllers.split(","):
            top, limit, used = Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes", "memory.usage_in_bytes"
        else:
            continue
        folder = top / place.lstrip("/")
        while folder != top.parent:
            most, taken = number(folder / limit), number(folder / used)
            if most is not None and taken is not None:  # no limit there, or `max`
                left.append(most - taken)
            folder = folder.parent
    return min(left) if left else None


def _limit_left() -> Optional[int]:
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    if soft == resource.RLIM_INFINITY:
        return None
    used = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    return int(soft) - used


def cpu_list(ranges: str) -> List[int]:
    """Return `0-3,8` as numbers."""
    numbers: List[int] = []
    for part in ranges.split(","):
        first, _, last = part.strip().partition("-")
        if first.isdigit():
            numbers += range(int(first), int(last or first) + 1)
    return numbers


def cpus_of(node: int) -> List[int]:
    """Return the processors of a NUMA node."""
    return cpu_list(text(NODES / ("node%d" % node) / "cpulist"))


def text(path: Path) -> str:
    """Return a file's text without its line end; empty if it cannot be read."""
    try:
        return path.read_text().strip()
    except (OSError, UnicodeDecodeError):
        return ""


def number(path: Path) -> Optional[int]:
    """Return the whole number in a file; None if it holds none (-1 among them) or cannot be read."""
    digits = text(path)
    return int(digits) if digits.isdigit() else None


def pci_device(bus: str) -> Path:
    """Return the folder of a PCI device; nvidia-smi writes eight digits of its domain, sysfs four."""
    return PCI / bus[-12:].lower()


def boot_id() -> str:
    """Return the machine's id, the same for all its containers; empty if the kernel does not tell."""
    return text(Path("/proc/sys/kernel/random/boot_id"))


# how nvidia-smi, which exits with 0, prints a value of a GPU that it cannot reach
LOST = "GPU is lost"


def smi(*args: str, timeout_s: float = _SMI_S) -> Optional[str]:
    """Return what nvidia-smi prints; None if there is none, it fails or hangs."""
    return printed(["nvidia-smi", *args], timeout_s)


def printed(argv: Sequence[str], timeout_s: float, any_status: bool = False) -> Optional[str]:
    """Return what a program prints; None if it is not there, fails (unless `any_status` will do) or hangs."""
    import subprocess  # most programs that read a machine need not wait for it

    quiet = subprocess.DEVNULL
    try:
        done = subprocess.run(argv, stdin=quiet, stdout=subprocess.PIPE, stderr=quiet, timeout=timeout_s)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.decode(errors="replace") if any_status or done.returncode == 0 else None


_PROC_NVIDIA = Path("/proc/driver/nvidia")
_NVIDIA, _DISPLAY_CLASS = "0x10de", "0x03"
# one that recordings have: index, name, …, driver_version, vbios_version
_QUERY = ("--query-gpu=index,name,uuid,pci.bus_id,memory.total,driver_version,vbios_version", "--format=csv")


def describe() -> str:
    """Return this machine in a line: its GPUs as the driver or PCI names them, the driver, the distribution."""
    fields = dict(re.findall(r'^(\w+)="?([^"\n]*)"?$', text(Path("/etc/os-release")), re.MULTILINE))
    return "%s, %s" % (_gpus(), fields.get("PRETTY_NAME") or platform.platform(terse=True))


def _gpus() -> str:
    reports = [text(path) for path in sorted((_PROC_NVIDIA / "gpus").glob("*/information"))]
    models = [re.search(r"^Model:\s*(.+?)\s*$", report, re.MULTILINE) for report in reports]
    names = [model[1] if model else "NVIDIA GPU" for model in models]
    version = re.search(r"\b\d{3,}\.\d+(?:\.\d+)?\b", text(_PROC_NVIDIA / "version"))
    driver = version[0] if version else ""
    if not names:  # WSL 2 has no such folder
        rows = [line.split(", ") for line in (smi(*_QUERY, timeout_s=_FIRST_LINE_S) or "").splitlines()]
        rows = [row for row in rows if len(row) == _QUERY[0].count(",") + 1 and row[0].isdigit()]
        names = ["lost GPU" if LOST in row[1] else row[1] for row in rows]
        driver = driver or (rows[0][5] if rows else "")
    if names:
        short = [re.sub(r"NVIDIA (GeForce )?", "", name) for name in names]
        counts = ["%d x %s" % (short.count(name), name) for name in dict.fromkeys(short)]
        return "%s, %s" % (" + ".join(counts), "driver %s" % driver if driver else "no driver loaded")
    devices = [path for path in PCI.glob("*/vendor") if text(path) == _NVIDIA]
    count = sum(text(path.with_name("class")).startswith(_DISPLAY_CLASS) for path in devices)
    return "%d NVIDIA GPU%s and no driver that lists them" % (count, "s" * (count > 1)) if count else "no NVIDIA GPU"
