"""How the running kernel is set beside its sysctls, and what it has gone through: taint, memory errors, processes."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from nodectl.checks.check import Check, Subject, Threshold, judges_fact, warning_unless
from nodectl.common.counting import counted
from nodectl.facts.kernel import KernelKnobs
from nodectl.facts.processes import Process, Processes
from nodectl.facts.processors import Cpu, MemoryErrors, Numa
from nodectl.model.finding import Finding
from nodectl.model.status import Status

ORDER = 170

_SETTINGS = "the kernel's settings beside its sysctls"

CPU_GOVERNOR = Check(
    "cpu_governor",
    looks_at="sysfs cpufreq",
    fires="warning: a CPU's governor is not performance",
    expected="performance on every CPU",
    remedy="`cpupower frequency-set -g performance`, and at boot by a unit or tuned",
)


def _governor(host: Subject, knobs: KernelKnobs) -> Iterator[Finding]:
    if not knobs.governors:
        # the host's platform or hypervisor keeps the clocks
        yield host.finding(CPU_GOVERNOR, Status.OK, actual="no frequency driver here")
        return
    actual = ", ".join(f"{name} on {count}" for name, count in sorted(knobs.governors.items()))
    yield host.finding(CPU_GOVERNOR, warning_unless(set(knobs.governors) == {"performance"}), actual=actual)


HUGE_PAGES = Check(
    "huge_pages",
    looks_at="sysfs",
    fires="warning: transparent huge pages are made in every page fault, whatever it costs",
    expected="memory not compacted in the middle of every page fault",
    remedy="`echo madvise >/sys/kernel/mm/transparent_hugepage/defrag`, and at boot",
)


def _huge_pages(host: Subject, knobs: KernelKnobs) -> Iterator[Finding]:
    enabled, defrag = knobs.transparent_hugepage, knobs.transparent_hugepage_defrag
    if defrag is None:
        yield _untold(host, HUGE_PAGES, "/sys/kernel/mm/transparent_hugepage")
        return
    status = warning_unless(not (defrag == "always" and enabled == "always"))
    yield host.finding(HUGE_PAGES, status, actual=f"enabled {enabled}, defrag {defrag}")


def _untold(host: Subject, check: Check, place: str) -> Finding:
    return host.finding(check, Status.UNKNOWN, actual="not told", remedy=f"look at {place} there")


NUMA_BALANCING = Check(
    "numa_balancing",
    looks_at="/proc/sys",
    fires="warning: on with several NUMA nodes",
    expected="0 where there are several NUMA nodes: ranks are bound, and pages need not wander",
    remedy="set kernel.numa_balancing to 0 in the tuning's sysctl",
)


def _numa_balancing(host: Subject, knobs: KernelKnobs) -> Iterator[Finding]:
    numa, cpu = host.fact("numa", Numa), host.fact("cpu", Cpu)
    nodes = len(numa.nodes) if numa else (cpu.numa_nodes if cpu else None) or 1
    if knobs.numa_balancing is None:
        yield host.finding(NUMA_BALANCING, Status.OK, actual="this kernel has none")
        return
    status = warning_unless(nodes < 2 or knobs.numa_balancing == 0)
    yield host.finding(NUMA_BALANCING, status, actual=f"{knobs.numa_balancing} with {nodes} NUMA nodes")


_SLOW_CLOCKS = ("hpet", "acpi_pm", "jiffies", "refined-jiffies")
CLOCKSOURCE = Check(
    "clocksource",
    looks_at="sysfs",
    fires="warning: one that is slow to read (hpet, acpi_pm)",
    expected="one that is read without leaving the processor (tsc, kvm-clock, arch_sys_counter)",
    remedy="look in `dmesg` why the kernel gave the TSC up; a firmware update or a reboot brings it back",
)


def _clocksource(host: Subject, knobs: KernelKnobs) -> Iterator[Finding]:
    source = knobs.clocksource
    if source is None:
        yield _untold(host, CLOCKSOURCE, "/sys/devices/system/clocksource/clocksource0")
    else:
        yield host.finding(CLOCKSOURCE, warning_unless(source not in _SLOW_CLOCKS), actual=source)


_KNOBS: dict[Check, Callable[[Subject, KernelKnobs], Iterator[Finding]]] = {
    CPU_GOVERNOR: _governor,
    HUGE_PAGES: _huge_pages,
    NUMA_BALANCING: _numa_balancing,
    CLOCKSOURCE: _clocksource,
}


@judges_fact(KernelKnobs, *_KNOBS, reads=("kernel_knobs", "numa", "cpu"), unread=_SETTINGS, borrowed="kernel")
def knobs(host: Subject, knobs: KernelKnobs) -> Iterator[Finding]:
    """Judge frequency governor, huge pages, NUMA balancing and clock source."""
    for judge in _KNOBS.values():
        yield from judge(host, knobs)


_UNTRANSLATED = {"iommu=pt", "iommu.passthrough=1", "iommu=off", "intel_iommu=off", "amd_iommu=off"}
IOMMU = Check(
    "iommu",
    looks_at="/proc/cmdline, sysfs",
    fires="warning: translating on bare metal with GPUs",
    expected="off, or passed through (iommu=pt)",
    remedy="add iommu=pt to the kernel's command line and reboot: with translation, peers go through the root complex",
)


@judges_fact(
    KernelKnobs,
    IOMMU,
    reads=("kernel_knobs", "cpu"),
    unread="off, or passed through",
    borrowed="kernel",
    where=lambda host: bool(host.gpus),
)
def iommu(host: Subject, knobs: KernelKnobs) -> Iterator[Finding]:
    """Report an IOMMU that translates traffic between devices, on bare metal with GPUs."""
    cpu = host.fact("cpu", Cpu)
    if cpu and cpu.hypervisor:
        return
    if knobs.iommu_groups is None or knobs.cmdline is None:
        yield _untold(host, IOMMU, "/proc/cmdline and /sys/kernel/iommu_groups")
        return
    passed = not _UNTRANSLATED.isdisjoint(knobs.cmdline.split())
    actual = f"{knobs.iommu_groups} groups, command line {'passes through' if passed else 'without iommu=pt'}"
    yield host.finding(IOMMU, warning_unless(passed or knobs.iommu_groups == 0), actual=actual)


# kernel.org, admin-guide/tainted-kernels: those that tell of trouble, not of a licence
_TAINTS = {4: "a machine check", 5: "a bad page", 7: "an oops", 14: "a soft lockup"}
KERNEL_TAINT = Check(
    "kernel_taint",
    looks_at="/proc/sys",
    fires="warning: marks of an oops, a machine check, a bad page or a lockup",
    expected="no mark of an oops, a machine check, a bad page or a lockup",
    remedy="read `dmesg` there for what happened, then reboot: this kernel cannot be trusted",
    action="reboot",
)


@judges_fact(KernelKnobs, KERNEL_TAINT, reads=("kernel_knobs",), unread=_SETTINGS, borrowed="kernel")
def taint(host: Subject, knobs: KernelKnobs) -> Iterator[Finding]:
    """Report taint flags that tell of trouble in the kernel."""
    if knobs.taint is None:
        yield _untold(host, KERNEL_TAINT, "/proc/sys/kernel/tainted")
        return
    marks = [name for bit, name in _TAINTS.items() if knobs.taint >> bit & 1]
    actual = f"{knobs.taint}: {', '.join(marks)}" if marks else str(knobs.taint)
    yield host.finding(KERNEL_TAINT, warning_unless(not marks), actual=actual)


MEMORY_UNCORRECTED = Check(
    "memory_uncorrected",
    looks_at="EDAC",
    fires="any error that was not corrected",
    expected="0",
    remedy="drain the node and have the module replaced; `ras-mc-ctl --errors` names it",
    action="drain",
)
CORRECTED_ERRORS_LIMIT = Threshold(
    "corrected_errors", 10, "a module that corrects more between two readings is about to fail"
)
CORRECTED_ERRORS_FIRST_LIMIT = Threshold(
    "corrected_errors_first", 1000, "without an earlier reading only a clear number counts"
)
MEMORY_CORRECTED = Check(
    "memory_corrected",
    looks_at="EDAC",
    fires="warning: many corrected ones since the last reading",
    expected="few",
    remedy="watch it; with more, have the module replaced: `ras-mc-ctl --errors` names it",
    thresholds=(CORRECTED_ERRORS_LIMIT, CORRECTED_ERRORS_FIRST_LIMIT),
)


@judges_fact(
    MemoryErrors,
    *(MEMORY_UNCORRECTED, MEMORY_CORRECTED),
    reads=("memory_errors",),
    unread="the memory controllers' counters",
    borrowed="memory",
)
def memory_errors(host: Subject, errors: MemoryErrors) -> Iterator[Finding]:
    """Fail for an uncorrected memory error, and warn of frequent corrected ones."""
    faults = (
        host.finding(MEMORY_UNCORRECTED, Status.FAILED, controller.name, actual=str(controller.uncorrected))
        for controller in errors.controllers
        if controller.uncorrected
    )
    none = f"0 on {len(errors.controllers)} controllers" if errors.controllers else "the kernel counts none here"
    yield from host.all_of(MEMORY_UNCORRECTED, faults, actual=none)
    yield from host.all_of(MEMORY_CORRECTED, _corrected(host, errors), actual=f"few; {none}")


def _corrected(host: Subject, errors: MemoryErrors) -> Iterator[Finding]:
    for controller in errors.controllers:
        grown = host.growth(f"edac.{controller.name}.corrected", controller.corrected)
        limits = (CORRECTED_ERRORS_LIMIT, CORRECTED_ERRORS_FIRST_LIMIT)
        yield from host.grew(MEMORY_CORRECTED, controller.name, grown, *limits)


# programs that ask NVIDIA's driver, by the 15 characters that the kernel keeps: one that gets no answer is enough
_OF_DRIVER = ("nvidia-smi", "nvidia-persiste", "nvidia-debugdum", "nv-hostengine", "nv-fabricmanage", "dcgm")
_ANSWERED_S = 30  # until then the driver may be starting all GPUs for it
STUCK_PROCESSES_LIMIT = Threshold("stuck_processes", 5, "gpud: five processes in uninterruptible sleep")
STUCK_PROCESSES = Check(
    "stuck_processes",
    looks_at="/proc",
    fires="warning: several processes in uninterruptible sleep, or one that talks to the GPUs' driver",
    remedy="find the device or file system that they wait for (`cat /proc/PID/stack`); "
    "if it is gone, only a reboot helps",
    thresholds=(STUCK_PROCESSES_LIMIT,),
)
LOAD_PER_THREAD_LIMIT = Threshold(
    "load_per_thread", 2.0, "an idle node's load is near nothing; above this ranks wait for processors"
)
LOAD = Check(
    "load",
    looks_at="/proc/loadavg",
    fires="warning: more than the processors can run",
    remedy="look who runs there (`top`), and for orphans of ended jobs: `nodectl jobs list`",
    thresholds=(LOAD_PER_THREAD_LIMIT,),
)


@judges_fact(Processes, STUCK_PROCESSES, reads=("processes",), unread="the processes' states")
def processes(host: Subject, processes: Processes) -> Iterator[Finding]:
    """Report processes that hang in the kernel.

    Numbers below the threshold are not shown, since they change from moment to moment.
    """
    stuck, most = processes.uninterruptible, host.threshold(STUCK_PROCESSES_LIMIT)
    of_driver = [task for task in stuck if task.name.startswith(_OF_DRIVER) and _is_old(task)]
    names = [
        f"{task.name} ({task.pid}{f' in {task.waits_in}' if task.waits_in else ''})"
        for task in sorted(stuck, key=lambda task: task not in of_driver)[:4]
    ]
    expected = f"fewer than {most:g} processes in uninterruptible sleep, none of which talks to the GPUs' driver"
    is_fine = len(stuck) < most and not of_driver
    actual = "no more than that" if is_fine else f"{len(stuck)} processes: {', '.join(names)}"
    yield host.finding(STUCK_PROCESSES, warning_unless(is_fine), expected=expected, actual=actual)


def _is_old(task: Process) -> bool:
    return task.age_s is None or task.age_s >= _ANSWERED_S


# the load of a lab host, dressed or not, is the machine's
@judges_fact(
    Processes,
    LOAD,
    reads=("processes", "lab", "cpu"),
    unread="the processes' states",
    where=lambda host: not host.shares("cpu"),
)
def load(host: Subject, processes: Processes) -> Iterator[Finding]:
    """Report a load that leaves too few processors to ranks."""
    cpu = host.fact("cpu", Cpu)
    if cpu is None:
        return
    most = host.threshold(LOAD_PER_THREAD_LIMIT) * cpu.threads
    expected = f"{most:g} or less, over five minutes, with {counted(cpu.threads, 'thread')}"
    status = warning_unless(processes.load_5 <= most)
    yield host.finding(LOAD, status, expected=expected, actual=f"{processes.load_5:g}")
