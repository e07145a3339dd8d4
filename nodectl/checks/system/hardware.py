"""Whether processors and memory are all there: what the hardware profile names, nothing lost of what is installed."""

from __future__ import annotations

from collections.abc import Iterator

from nodectl.checks.check import Check, Subject, Threshold, failed_unless, judges, warning_unless
from nodectl.facts.base import whole
from nodectl.facts.cpu import Cpu
from nodectl.facts.memory import Memory
from nodectl.facts.numa import Numa
from nodectl.model.finding import Finding
from nodectl.model.status import Status

ORDER = 160

_REPLUG = "look at the firmware's log (`ipmitool sel list`): a processor or module may have been taken out of service"
_BIOS = "compare the firmware's settings (SMT, NPS, sub-NUMA clusters) with a node that is right"
_UNEVEN = 0.75  # the smallest NUMA node's memory against the largest's
_GIB_MIB = 1024


CPU_MODEL = Check(
    "cpu_model",
    looks_at="lscpu",
    fires="another processor than the hardware profile's",
    remedy="choose the hardware profile that this node is, or correct the profile",
)
CPU_SOCKETS = Check("cpu_sockets", looks_at="lscpu", fires="not as many sockets as the profile has")
CPU_CORES = Check("cpu_cores", looks_at="lscpu", fires="not as many cores")
CPU_THREADS = Check("cpu_threads", looks_at="lscpu", fires="not as many threads: SMT switched, or processors lost")
CPU_OFFLINE = Check(
    "cpu_offline",
    looks_at="lscpu",
    fires="warning: processors that the kernel knows are offline",
    expected="every processor online",
    remedy="`chcpu -e LIST` there, and look why they were taken offline (`dmesg`, machine checks)",
)


@judges(CPU_MODEL, CPU_SOCKETS, CPU_CORES, CPU_THREADS, CPU_OFFLINE, reads=("lab", "cpu"))
def processors(host: Subject) -> Iterator[Finding]:
    """Model, sockets, cores and threads as the hardware profile has them; none of them offline."""
    if host.borrows("cpu"):
        return
    cpu = host.facts.get("cpu")
    wanted = host.wanted.hardware.cpu if host.wanted else None
    ids = (CPU_MODEL, CPU_SOCKETS, CPU_CORES, CPU_THREADS) if wanted else ()
    yield from host.unknown(cpu, "the processors", *ids, CPU_OFFLINE)
    if not isinstance(cpu, Cpu):
        return
    if wanted is not None:
        same = cpu.model is not None and wanted.model.lower() in cpu.model.lower()
        status = Status.UNKNOWN if cpu.model is None else failed_unless(same)
        actual = cpu.model or "not named"
        yield host.finding(CPU_MODEL, status, expected=wanted.model, actual=actual)
        counts = (
            (CPU_SOCKETS, "sockets", wanted.sockets, cpu.sockets, _REPLUG),
            (CPU_CORES, "cores", wanted.cores, cpu.cores, _REPLUG),
            (CPU_THREADS, "threads", wanted.threads, cpu.threads, _BIOS),
        )
        for check, what, number, actual_number, remedy in counts:
            yield _count(host, check, what, number, actual_number, remedy)
    yield _offline(host, cpu)


def _count(host: Subject, check: Check, what: str, wanted: int, actual: int | None, remedy: str) -> Finding:
    expected = f"{wanted} {what}"
    if actual is None:
        return host.finding(check, Status.UNKNOWN, expected=expected, actual="not told by lscpu", remedy=remedy)
    return host.finding(check, failed_unless(actual == wanted), expected=expected, actual=str(actual), remedy=remedy)


def _offline(host: Subject, cpu: Cpu) -> Finding:
    """lscpu counts all threads that the kernel knows of; those online may be fewer."""
    if cpu.online is None:
        remedy = "look at /sys/devices/system/cpu/online there"
        return host.finding(CPU_OFFLINE, Status.UNKNOWN, actual="not told", remedy=remedy)
    online = cpu_count(cpu.online)
    actual = f"{online} of {cpu.threads} ({cpu.online})"
    return host.finding(CPU_OFFLINE, warning_unless(online >= cpu.threads), actual=actual)


def cpu_count(text: str) -> int:
    """How many CPUs a kernel's list such as 0-7,64-71 names."""
    count = 0
    for part in text.split(","):
        first, _, last = part.strip().partition("-")
        low, high = whole(first), whole(last)
        if low is not None:
            count += 1 if high is None else high - low + 1
    return count


NUMA_NODES = Check("numa_nodes", looks_at="sysfs", fires="warning: fewer NUMA nodes than sockets", remedy=_BIOS)
MEMORY_BALANCE = Check(
    "memory_balance",
    looks_at="sysfs",
    fires="warning: a NUMA node has less than three quarters of another's memory",
    expected="each NUMA node as much memory as the others",
    remedy=f"a module is missing or off on one node: {_REPLUG}",
)


@judges(NUMA_NODES, MEMORY_BALANCE, reads=("lab", "numa", "cpu"))
def numa(host: Subject) -> Iterator[Finding]:
    """A node of memory for each socket at least, each with memory, and about as much as the others."""
    if host.borrows("sys"):
        return
    found, cpu = host.facts.get("numa"), host.fact("cpu", Cpu)
    yield from host.unknown(found, "the NUMA nodes", NUMA_NODES, MEMORY_BALANCE)
    if not isinstance(found, Numa) or not found.nodes:
        return
    sockets = (cpu.sockets if cpu else None) or 1
    number = len(found.nodes)
    expected = f"{sockets} or more, one for each socket"
    yield host.finding(NUMA_NODES, warning_unless(number >= sockets), expected=expected, actual=str(number))
    sizes = {each.node: each.memory_mib for each in found.nodes}
    known = {node: size for node, size in sizes.items() if size is not None}
    if len(known) < len(sizes):
        yield host.finding(MEMORY_BALANCE, Status.UNKNOWN, actual="not told")
        return
    least, most = min(known.values()), max(known.values())
    actual = ", ".join(f"node {node}: {size // _GIB_MIB} GiB" for node, size in known.items())
    yield host.finding(MEMORY_BALANCE, warning_unless(least >= _UNEVEN * most), actual=actual)


MEMORY_PERCENT_LIMIT = Threshold(
    "memory_percent", 90, "what the firmware and the kernel keep is less than a tenth of what is installed"
)
SWAP_USED_PERCENT_LIMIT = Threshold("swap_used_percent", 10, "a training node that swaps is slow for every rank")
MEMORY_SIZE = Check(
    "memory_size",
    looks_at="/proc/meminfo",
    fires="less than the profile's, beyond what firmware keeps",
    remedy=_REPLUG,
    thresholds=(MEMORY_PERCENT_LIMIT,),
)
SWAP = Check(
    "swap",
    looks_at="/proc/meminfo",
    fires="warning: more of it in use than the threshold",
    remedy="find what fills the memory (`ps aux --sort -rss | head` there), then `swapoff -a && swapon -a`",
    thresholds=(SWAP_USED_PERCENT_LIMIT,),
)


@judges(MEMORY_SIZE, SWAP, reads=("lab", "memory"))
def memory(host: Subject) -> Iterator[Finding]:
    """As much as the profile names, less what firmware and kernel keep; not swapped out."""
    if host.borrows("memory"):
        return
    found = host.facts.get("memory")
    wanted = host.wanted.hardware.memory_gb if host.wanted else None
    yield from host.unknown(found, "the memory", *([MEMORY_SIZE] if wanted else []), SWAP)
    if not isinstance(found, Memory):
        return
    if wanted is not None:
        percent = host.threshold(MEMORY_PERCENT_LIMIT)
        least = wanted * 1e9 / 2**20 * percent / 100
        expected = f"{wanted} GB installed, {percent:g} % of it usable or more"
        actual = f"{found.total_mib * 2**20 / 1e9:.0f} GB"
        yield host.finding(MEMORY_SIZE, failed_unless(found.total_mib >= least), expected=expected, actual=actual)
    yield _swap(host, found)


def _swap(host: Subject, found: Memory) -> Finding:
    limit = host.threshold(SWAP_USED_PERCENT_LIMIT)
    expected = f"at most {limit:g} % of swap in use"
    if not found.swap_mib:
        return host.finding(SWAP, Status.OK, expected=expected, actual="no swap")
    if found.swap_free_mib is None:
        return host.finding(SWAP, Status.UNKNOWN, expected=expected, actual="not told")
    used = 100 * (found.swap_mib - found.swap_free_mib) / found.swap_mib
    actual = f"{used:.0f} % of {found.swap_mib} MiB"
    return host.finding(SWAP, warning_unless(used <= limit), expected=expected, actual=actual)
