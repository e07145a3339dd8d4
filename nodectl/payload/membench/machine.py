"""What a measurement of memory must know of this host: processors, NUMA nodes, caches, and how much memory is free."""

import os
import re
from pathlib import Path
from typing import Dict, Iterable, List, NamedTuple, Optional, Set

CPU = Path("/sys/devices/system/cpu")
NODES = Path("/sys/devices/system/node")
# arrays that no cache can hold, and that leave the host most of its memory
TIMES_CACHE = 4
FREE_PART = 4
MIB = 1 << 20
LEAST_BYTES = 8 * MIB
MOST_BYTES = 4096 * MIB
# where sysfs tells of no cache
CACHE_BYTES = 32 * MIB
_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_CGROUP_LIMITS = (
    ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
    ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"),
)


class Scope(NamedTuple):
    """Processors to be used together: all (`numa` is None), or those of one NUMA node."""

    numa: Optional[int]
    cpus: List[int]


def scopes() -> List[Scope]:
    """All processors, and each NUMA node where there are several."""
    cores = one_a_core(sorted(os.sched_getaffinity(0)))
    nodes = []
    for path in sorted(NODES.glob("node[0-9]*"), key=lambda each: int(each.name[4:])):
        own = set(cpu_list(text(path / "cpulist"))) & set(cores)
        if own:
            nodes.append(Scope(int(path.name[4:]), sorted(own)))
    return [Scope(None, cores)] + (nodes if len(nodes) > 1 else [])


def one_a_core(cpus: List[int]) -> List[int]:
    """The first thread of each core: a second one adds no bandwidth."""
    chosen: List[int] = []
    seen: Set[int] = set()
    for cpu in cpus:
        siblings = cpu_list(text(CPU / ("cpu%d" % cpu) / "topology/thread_siblings_list")) or [cpu]
        if not seen & set(siblings):
            chosen.append(cpu)
            seen |= set(siblings)
    return chosen


def cache_bytes(cpus: Iterable[int]) -> int:
    """The last-level caches of these processors together."""
    found: Dict[str, int] = {}
    for cpu in cpus:
        levels = {}
        for path in (CPU / ("cpu%d" % cpu) / "cache").glob("index[0-9]*"):
            size = re.fullmatch(r"(\d+)([KMG]?)", text(path / "size"))
            if size and text(path / "type") in ("Unified", "Data"):
                shared = "%s:%s" % (text(path / "level"), text(path / "shared_cpu_list"))
                levels[int(text(path / "level") or 0)] = (shared, int(size[1]) * _UNITS.get(size[2], 1))
        if levels:
            shared, size_bytes = levels[max(levels)]
            found[shared] = size_bytes
    return sum(found.values()) or CACHE_BYTES


def array_bytes(cache: int, arrays: int) -> int:
    """How large each of so many arrays may be."""
    free = available_bytes() // FREE_PART // arrays
    return max(LEAST_BYTES, min(TIMES_CACHE * cache, free, MOST_BYTES))


def available_bytes() -> int:
    """What may be taken without swapping, here and within the control group."""
    found = re.search(r"^MemAvailable:\s+(\d+) kB", text(Path("/proc/meminfo")), re.MULTILINE)
    free = int(found[1]) * 1024 if found else LEAST_BYTES
    for limit, used in _CGROUP_LIMITS:
        if text(Path(limit)).isdigit() and text(Path(used)).isdigit():
            free = min(free, int(text(Path(limit))) - int(text(Path(used))))
    return free


def cpu_list(ranges: str) -> List[int]:
    """`0-3,8` as numbers."""
    found: List[int] = []
    for part in ranges.split(","):
        first, _, last = part.strip().partition("-")
        if first.isdigit():
            found += range(int(first), int(last or first) + 1)
    return found


def text(path: Path) -> str:
    """A file's text without its line end; empty where it cannot be read."""
    try:
        return path.read_text().strip()
    except (OSError, UnicodeDecodeError):
        return ""
