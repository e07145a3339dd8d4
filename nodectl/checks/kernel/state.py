"""How the running kernel is set beside its sysctls, and what it has gone through: taint, memory errors, processes."""

from __future__ import annotations

from collections.abc import Iterator

from nodectl.checks.check import Check, Subject, Threshold, judges, warning_unless
from nodectl.facts.cpu import Cpu
from nodectl.facts.kernel_knobs import KernelKnobs
from nodectl.facts.memory_errors import MemoryErrors
from nodectl.facts.numa import Numa
from nodectl.facts.processes import Processes
from nodectl.model.finding import Finding
from nodectl.model.status import Status

ORDER = 170

_PROVISION = "set it on the kernel's command line or by a unit at boot"
# kernel.org, admin-guide/tainted-kernels: those that tell of trouble, not of a licence
_TAINTS = {4: "a machine check", 5: "a bad page", 7: "an oops", 9: "a warning", 14: "a soft lockup"}
_SERIOUS = (4, 5, 7, 14)


CPU_GOVERNOR = Check("cpu_governor", looks_at="sysfs cpufreq", fires="warning: a CPU's governor is not performance")
HUGE_PAGES = Check(
    "huge_pages",
    looks_at="sysfs",
    fires="warning: transparent huge pages are made in every page fault, whatever it costs",
)
NUMA_BALANCING = Check("numa_balancing", looks_at="/proc/sys", fires="warning: on with several NUMA nodes")
CLOCKSOURCE = Check("clocksource", looks_at="sysfs", fires="warning: one that is slow to read (hpet, acpi_pm)")
IOMMU = Check("iommu", looks_at="/proc/cmdline, sysfs", fires="warning: translating on bare metal with GPUs")
KERNEL_TAINT = Check(
    "kernel_taint", looks_at="/proc/sys", fires="warning: marks of an oops, a machine check, a bad page or a lockup"
)


@judges(
    CPU_GOVERNOR,
    HUGE_PAGES,
    NUMA_BALANCING,
    CLOCKSOURCE,
    IOMMU,
    KERNEL_TAINT,
    reads=("lab", "kernel_knobs", "numa", "cpu"),
)
def knobs(host: Subject) -> Iterator[Finding]:
    """Frequency governor, huge pages, NUMA balancing, clock source, IOMMU and taint."""
    if host.borrows("kernel"):
        return
    found = host.facts.get("kernel_knobs")
    ids = (CPU_GOVERNOR, HUGE_PAGES, NUMA_BALANCING, CLOCKSOURCE, KERNEL_TAINT)
    yield from host.unknown(found, "the kernel's settings beside its sysctls", *ids)
    if host.wanted and host.wanted.hardware.gpus:
        yield from host.unknown(found, "off, or passed through", IOMMU)
    if isinstance(found, KernelKnobs):
        yield from _governor(host, found)
        yield from _huge_pages(host, found)
        yield from _numa_balancing(host, found)
        yield from _clocksource(host, found)
        yield from _iommu(host, found)
        yield from _taint(host, found)


def _governor(host: Subject, found: KernelKnobs) -> Iterator[Finding]:
    expected = "performance on every CPU"
    if not found.governors:
        # the host's platform or hypervisor keeps the clocks
        yield host.finding(CPU_GOVERNOR, Status.OK, expected=expected, actual="no frequency driver here")
        return
    actual = ", ".join(f"{name} on {count}" for name, count in sorted(found.governors.items()))
    remedy = "`cpupower frequency-set -g performance`, and at boot by a unit or tuned"
    right = set(found.governors) == {"performance"}
    yield host.finding(CPU_GOVERNOR, warning_unless(right), expected=expected, actual=actual, remedy=remedy)


def _huge_pages(host: Subject, found: KernelKnobs) -> Iterator[Finding]:
    expected = "memory not compacted in the middle of every page fault"
    defrag = found.transparent_hugepage_defrag
    if defrag is None:
        remedy = "look at /sys/kernel/mm/transparent_hugepage there"
        yield host.finding(HUGE_PAGES, Status.UNKNOWN, expected=expected, actual="not told", remedy=remedy)
        return
    remedy = "`echo madvise >/sys/kernel/mm/transparent_hugepage/defrag`, and at boot"
    bad = defrag == "always" and found.transparent_hugepage == "always"
    actual = f"enabled {found.transparent_hugepage}, defrag {defrag}"
    yield host.finding(HUGE_PAGES, warning_unless(not bad), expected=expected, actual=actual, remedy=remedy)


def _numa_balancing(host: Subject, found: KernelKnobs) -> Iterator[Finding]:
    numa = host.fact("numa", Numa)
    cpu = host.fact("cpu", Cpu)
    nodes = len(numa.nodes) if numa else (cpu.numa_nodes if cpu else None) or 1
    expected = "0 where there are several NUMA nodes: ranks are bound, and pages need not wander"
    if found.numa_balancing is None:
        # a kernel without it
        yield host.finding(NUMA_BALANCING, Status.OK, expected=expected, actual="this kernel has none")
        return
    right = nodes < 2 or found.numa_balancing == 0
    actual = f"{found.numa_balancing} with {nodes} NUMA nodes"
    remedy = "set kernel.numa_balancing to 0 in the tuning's sysctl"
    yield host.finding(NUMA_BALANCING, warning_unless(right), expected=expected, actual=actual, remedy=remedy)


def _clocksource(host: Subject, found: KernelKnobs) -> Iterator[Finding]:
    slow = ("hpet", "acpi_pm", "jiffies", "refined-jiffies")
    expected = "one that is read without leaving the processor (tsc, kvm-clock, arch_sys_counter)"
    if found.clocksource is None:
        remedy = "look at /sys/devices/system/clocksource/clocksource0 there"
        yield host.finding(CLOCKSOURCE, Status.UNKNOWN, expected=expected, actual="not told", remedy=remedy)
        return
    remedy = "look in `dmesg` why the kernel gave the TSC up; a firmware update or a reboot brings it back"
    right = found.clocksource not in slow
    yield host.finding(CLOCKSOURCE, warning_unless(right), expected=expected, actual=found.clocksource, remedy=remedy)


def _iommu(host: Subject, found: KernelKnobs) -> Iterator[Finding]:
    """On bare metal with GPUs, traffic between devices is not to be translated by the IOMMU."""
    cpu = host.fact("cpu", Cpu)
    if not (host.wanted and host.wanted.hardware.gpus) or (cpu and cpu.hypervisor):
        return
    expected = "off, or passed through (iommu=pt)"
    if found.iommu_groups is None or found.cmdline is None:
        remedy = "look at /proc/cmdline and /sys/kernel/iommu_groups there"
        yield host.finding(IOMMU, Status.UNKNOWN, expected=expected, actual="not told", remedy=remedy)
        return
    words = set(found.cmdline.split())
    passed = bool(words & {"iommu=pt", "iommu.passthrough=1", "iommu=off", "intel_iommu=off", "amd_iommu=off"})
    actual = f"{found.iommu_groups} groups, command line {'passes through' if passed else 'without iommu=pt'}"
    remedy = "add iommu=pt to the kernel's command line and reboot: with translation, peers go through the root complex"
    right = passed or found.iommu_groups == 0
    yield host.finding(IOMMU, warning_unless(right), expected=expected, actual=actual, remedy=remedy)


def _taint(host: Subject, found: KernelKnobs) -> Iterator[Finding]:
    expected = "no mark of an oops, a machine check, a bad page or a lockup"
    if found.taint is None:
        remedy = "look at /proc/sys/kernel/tainted there"
        yield host.finding(KERNEL_TAINT, Status.UNKNOWN, expected=expected, actual="not told", remedy=remedy)
        return
    marks = [name for bit, name in _TAINTS.items() if found.taint >> bit & 1 and bit in _SERIOUS]
    actual = f"{found.taint}: {', '.join(marks)}" if marks else str(found.taint)
    remedy = "read `dmesg` there for what happened, then reboot: this kernel cannot be trusted"
    yield host.finding(
        KERNEL_TAINT, warning_unless(not marks), expected=expected, actual=actual, remedy=remedy, action="reboot"
    )


CORRECTED_ERRORS_LIMIT = Threshold(
    "corrected_errors", 10, "a module that corrects more between two readings is about to fail"
)
CORRECTED_ERRORS_FIRST_LIMIT = Threshold(
    "corrected_errors_first", 1000, "without an earlier reading only a clear number counts"
)
MEMORY_UNCORRECTED = Check("memory_uncorrected", looks_at="EDAC", fires="any error that was not corrected")
MEMORY_CORRECTED = Check(
    "memory_corrected",
    looks_at="EDAC",
    fires="warning: many corrected ones since the last reading",
    thresholds=(CORRECTED_ERRORS_LIMIT, CORRECTED_ERRORS_FIRST_LIMIT),
)


@judges(MEMORY_UNCORRECTED, MEMORY_CORRECTED, reads=("lab", "memory_errors"))
def memory_errors(host: Subject) -> Iterator[Finding]:
    """No uncorrected error of the host's memory, and no more corrected ones than now and then."""
    if host.borrows("memory"):
        return
    found = host.facts.get("memory_errors")
    yield from host.unknown(found, "the memory controllers' counters", MEMORY_UNCORRECTED, MEMORY_CORRECTED)
    if not isinstance(found, MemoryErrors):
        return
    lost = [each for each in found.controllers if each.uncorrected]
    remedy = "drain the node and have the module replaced; `ras-mc-ctl --errors` names it"
    faults = (
        host.finding(
            MEMORY_UNCORRECTED, Status.FAILED, each.name, expected="0", actual=str(each.uncorrected), remedy=remedy,
            action="drain",
        )
        for each in lost
    )  # fmt: skip
    told = f"0 on {len(found.controllers)} controllers" if found.controllers else "the kernel counts none here"
    yield from host.all_of(MEMORY_UNCORRECTED, faults, expected="0", actual=told)
    yield from host.all_of(MEMORY_CORRECTED, _corrected(host, found), expected="few", actual=f"few; {told}")


def _corrected(host: Subject, found: MemoryErrors) -> Iterator[Finding]:
    for each in found.controllers:
        grown = host.growth(f"edac.{each.name}.corrected", each.corrected)
        limit = host.threshold(CORRECTED_ERRORS_FIRST_LIMIT if grown.by is None else CORRECTED_ERRORS_LIMIT)
        if (grown.value if grown.by is None else grown.by) >= limit:
            remedy = "watch it; with more, have the module replaced: `ras-mc-ctl --errors` names it"
            expected = f"fewer than {limit:g}"
            yield host.finding(
                MEMORY_CORRECTED, Status.WARNING, each.name, expected=expected, actual=grown.told, remedy=remedy
            )


LOAD_PER_THREAD_LIMIT = Threshold(
    "load_per_thread", 2.0, "an idle node's load is near nothing; above this ranks wait for processors"
)
STUCK_PROCESSES_LIMIT = Threshold("stuck_processes", 5, "gpud: five processes in uninterruptible sleep")
ZOMBIES_LIMIT = Threshold("zombies", 100, "one parent that does not reap; process ids run out late")
STUCK_PROCESSES = Check(
    "stuck_processes",
    looks_at="/proc",
    fires="warning: several processes in uninterruptible sleep",
    thresholds=(STUCK_PROCESSES_LIMIT,),
)
ZOMBIES = Check("zombies", looks_at="/proc", fires="warning: very many", thresholds=(ZOMBIES_LIMIT,))
LOAD = Check(
    "load",
    looks_at="/proc/loadavg",
    fires="warning: more than the processors can run",
    thresholds=(LOAD_PER_THREAD_LIMIT,),
)


@judges(STUCK_PROCESSES, ZOMBIES, LOAD, reads=("processes", "lab", "cpu"))
def processes(host: Subject) -> Iterator[Finding]:
    """Nobody hangs in the kernel, no heap of dead children, and processors free for ranks."""
    found = host.facts.get("processes")
    ids = (STUCK_PROCESSES, ZOMBIES) if host.shares("cpu") else (STUCK_PROCESSES, ZOMBIES, LOAD)
    yield from host.unknown(found, "the processes' states", *ids)
    if not isinstance(found, Processes):
        return
    limit, number = host.threshold(STUCK_PROCESSES_LIMIT), len(found.uninterruptible)
    names = ", ".join(f"{each.name} ({each.pid}{_in(each.waits_in)})" for each in found.uninterruptible[:4])
    actual = f"{number}: {names}" if number else "0"
    remedy = (
        "find the device or file system that they wait for (`cat /proc/PID/stack`); if it is gone, only a reboot helps"
    )
    status = warning_unless(number < limit)
    expected = f"fewer than {limit:g} in uninterruptible sleep"
    yield host.finding(STUCK_PROCESSES, status, expected=expected, actual=actual, remedy=remedy)
    limit = host.threshold(ZOMBIES_LIMIT)
    remedy = "stop the parent that does not wait for its children (`ps -eo ppid,stat | grep Z` there)"
    expected = f"fewer than {limit:g}"
    yield host.finding(
        ZOMBIES, warning_unless(found.zombies < limit), expected=expected, actual=str(found.zombies), remedy=remedy
    )
    yield from _load(host, found)


def _in(place: str | None) -> str:
    return f" in {place}" if place else ""


def _load(host: Subject, found: Processes) -> Iterator[Finding]:
    # the load of a lab host, dressed or not, is the machine's
    cpu = host.fact("cpu", Cpu)
    if host.shares("cpu") or cpu is None:
        return
    most = host.threshold(LOAD_PER_THREAD_LIMIT) * cpu.threads
    remedy = "look who runs there (`top`), and for orphans of ended jobs: `nodectl jobs list`"
    expected = f"{most:g} or less, over five minutes, with {cpu.threads} threads"
    yield host.finding(
        LOAD, warning_unless(found.load_5 <= most), expected=expected, actual=f"{found.load_5:g}", remedy=remedy
    )
