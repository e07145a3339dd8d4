"""Whether processors and memory are all there: what the hardware profile names, nothing lost of what is installed."""

from __future__ import annotations

from collections.abc import Iterator

from nodectl.checks.check import Check, Subject, Threshold, failed_unless, judges_fact, warning_unless
from nodectl.facts.processors import Cpu, Memory, Numa, cpu_set
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
    remedy="look whether the board was exchanged (`dmidecode -t system`); if the node is meant so, choose its own "
    "hardware profile",
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


@judges_fact(
    Cpu,
    *(CPU_MODEL, CPU_SOCKETS, CPU_CORES, CPU_THREADS),
    reads=("cpu",),
    unread="the processors",
    borrowed="cpu",
    where=lambda host: bool(host.wanted and host.wanted.hardware.cpu),
)
def processors(host: Subject, cpu: Cpu) -> Iterator[Finding]:
    """Model, sockets, cores and threads as the hardware profile has them."""
    wanted = host.wanted.hardware.cpu if host.wanted else None
    if wanted is None:
        return
    same = cpu.model is not None and wanted.model.lower() in cpu.model.lower()
    status = Status.UNKNOWN if cpu.model is None else failed_unless(same)
    yield host.finding(CPU_MODEL, status, expected=wanted.model, actual=cpu.model or "not named")
    counts = (
        (CPU_SOCKETS, "sockets", wanted.sockets, cpu.sockets, _REPLUG),
        (CPU_CORES, "cores", wanted.cores, cpu.cores, _REPLUG),
        (CPU_THREADS, "threads", wanted.threads, cpu.threads, _BIOS),
    )
    for check, noun, number, live, remedy in counts:
        status = Status.UNKNOWN if live is None else failed_unless(live == number)
        actual = "not told by lscpu" if live is None else str(live)
        yield host.finding(check, status, expected=f"{number} {noun}", actual=actual, remedy=remedy)


@judges_fact(Cpu, CPU_OFFLINE, reads=("cpu",), unread="the processors", borrowed="cpu")
def offline(host: Subject, cpu: Cpu) -> Iterator[Finding]:
    """lscpu counts all threads that the kernel knows of; those online may be fewer."""
    if cpu.online is None:
        remedy = "look at /sys/devices/system/cpu/online there"
        yield host.finding(CPU_OFFLINE, Status.UNKNOWN, actual="not told", remedy=remedy)
        return
    online = len(cpu_set(cpu.online))
    actual = f"{online} of {cpu.threads} ({cpu.online})"
    yield host.finding(CPU_OFFLINE, warning_unless(online >= cpu.threads), actual=actual)


NUMA_NODES = Check("numa_nodes", looks_at="sysfs", fires="warning: fewer NUMA nodes than sockets", remedy=_BIOS)
MEMORY_BALANCE = Check(
    "memory_balance",
    looks_at="sysfs",
    fires="warning: a NUMA node has less than three quarters of another's memory",
    expected="each NUMA node as much memory as the others",
    remedy=f"a module is missing or off on one node: {_REPLUG}",
)


@judges_fact(Numa, NUMA_NODES, MEMORY_BALANCE, reads=("numa", "cpu"), unread="the NUMA nodes", borrowed="sys")
def numa(host: Subject, numa: Numa) -> Iterator[Finding]:
    """A node of memory for each socket at least, each with memory, and about as much as the others."""
    if not numa.nodes:
        return
    cpu = host.fact("cpu", Cpu)
    sockets = (cpu.sockets if cpu else None) or 1
    # a node without processors is a GPU's memory (GH200), or memory at the end of a link (CXL)
    nodes = [node for node in numa.nodes if node.cpus] or list(numa.nodes)
    number = len(nodes)
    expected = f"{sockets} or more, one for each socket"
    yield host.finding(NUMA_NODES, warning_unless(number >= sockets), expected=expected, actual=str(number))
    sizes = {node.node: node.memory_mib for node in nodes}
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


@judges_fact(
    Memory,
    MEMORY_SIZE,
    reads=("memory",),
    unread="the memory",
    borrowed="memory",
    where=lambda host: bool(host.wanted and host.wanted.hardware.memory_gb),
)
def memory(host: Subject, memory: Memory) -> Iterator[Finding]:
    """As much as the profile names, less what firmware and kernel keep."""
    wanted_gb, percent = (
        (host.wanted.hardware.memory_gb if host.wanted else 0) or 0,
        host.threshold(MEMORY_PERCENT_LIMIT),
    )
    enough = memory.total_mib >= wanted_gb * 1e9 / 2**20 * percent / 100
    expected = f"{wanted_gb} GB installed, {percent:g} % of it usable or more"
    actual = f"{memory.total_mib * 2**20 / 1e9:.0f} GB"
    yield host.finding(MEMORY_SIZE, failed_unless(enough), expected=expected, actual=actual)


@judges_fact(Memory, SWAP, reads=("memory",), unread="the memory", borrowed="memory")
def swap(host: Subject, memory: Memory) -> Iterator[Finding]:
    """Not much of the memory in use is swapped out."""
    limit = host.threshold(SWAP_USED_PERCENT_LIMIT)
    status, actual = Status.OK, "no swap"
    if memory.swap_mib and memory.swap_free_mib is None:
        status, actual = Status.UNKNOWN, "not told"
    elif memory.swap_mib and memory.swap_free_mib is not None:
        used = 100 * (memory.swap_mib - memory.swap_free_mib) / memory.swap_mib
        status, actual = warning_unless(used <= limit), f"{used:.0f} % of {memory.swap_mib} MiB"
    yield host.finding(SWAP, status, expected=f"at most {limit:g} % of swap in use", actual=actual)


MEMORY_AVAILABLE_PERCENT_LIMIT = Threshold(
    "memory_available_percent",
    10,
    "earlyoom's own limit: below it, allocations stall and the kernel soon ends processes",
)
MEMORY_AVAILABLE = Check(
    "memory_available",
    looks_at="/proc/meminfo",
    fires="warning: less available than the threshold, apart from huge pages",
    remedy="find what fills the memory (`ps aux --sort -rss | head`, `df -h /dev/shm` there); end what no job needs",
    thresholds=(MEMORY_AVAILABLE_PERCENT_LIMIT,),
)


@judges_fact(Memory, MEMORY_AVAILABLE, reads=("memory",), unread="the memory", borrowed="memory")
def available(host: Subject, memory: Memory) -> Iterator[Finding]:
    """Ranks and their loaders find memory."""
    least = host.threshold(MEMORY_AVAILABLE_PERCENT_LIMIT)
    usable_mib = memory.total_mib - (memory.huge_pages_mib or 0)
    expected = f"{least:g} % of the memory available or more"
    if memory.available_mib is None or usable_mib <= 0:
        yield host.finding(MEMORY_AVAILABLE, Status.UNKNOWN, expected=expected, actual="not told")
        return
    percent = 100 * memory.available_mib / usable_mib
    enough = percent >= least
    actual = expected if enough else f"{percent:.0f} %: {memory.available_mib} MiB of {usable_mib}"
    yield host.finding(MEMORY_AVAILABLE, warning_unless(enough), expected=expected, actual=actual)
