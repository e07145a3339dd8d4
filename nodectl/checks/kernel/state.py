"""How the running kernel is set beside its sysctls, and what it has gone through: taint, memory errors, processes."""

from __future__ import annotations

from collections.abc import Iterator

from nodectl.checks.check import Check, Subject, Threshold, Told, judges_fact, judges_value
from nodectl.common.counting import counted
from nodectl.facts.kernel import KernelKnobs
from nodectl.facts.processes import Processes
from nodectl.facts.processors import Cpu, MemoryErrors, Numa
from nodectl.model.finding import Finding
from nodectl.model.status import Status

ORDER = 170

_SETTINGS = "the kernel's settings beside its sysctls"
_KNOBS = ("kernel_knobs",)

CPU_GOVERNOR = Check(
    "cpu_governor",
    fires="warning: a CPU's governor is not performance",
    expected="performance on every CPU",
    remedy="`cpupower frequency-set -g performance`, and at boot by a unit or tuned",
)


@judges_value(KernelKnobs, CPU_GOVERNOR, reads=_KNOBS, unread=_SETTINGS, borrowed="kernel")
def governor(_: Subject, knobs: KernelKnobs) -> Told:
    """Judge the governors; if there are none, the platform or the hypervisor keeps the clocks."""
    actual = ", ".join(f"{name} on {count}" for name, count in sorted(knobs.governors.items()))
    return Told(not set(knobs.governors) - {"performance"}, actual or "no frequency driver here")


HUGE_PAGES = Check(
    "huge_pages",
    fires="warning: transparent huge pages are made in every page fault, whatever it costs",
    expected="memory not compacted in the middle of every page fault",
    remedy="`echo madvise >/sys/kernel/mm/transparent_hugepage/defrag`, and at boot",
)


@judges_value(KernelKnobs, HUGE_PAGES, reads=_KNOBS, unread=_SETTINGS, borrowed="kernel")
def huge_pages(_: Subject, knobs: KernelKnobs) -> Told:
    """Compacting memory in a page fault makes single steps slow."""
    enabled, defrag = knobs.transparent_hugepage, knobs.transparent_hugepage_defrag
    if defrag is None:
        return Told(None, remedy="look at /sys/kernel/mm/transparent_hugepage there")
    return Told((enabled, defrag) != ("always", "always"), f"enabled {enabled}, defrag {defrag}")


NUMA_BALANCING = Check(
    "numa_balancing",
    fires="warning: on with several NUMA nodes",
    expected="0 where there are several NUMA nodes: ranks are bound, and pages need not wander",
    remedy="set kernel.numa_balancing to 0 in the tuning's sysctl",
)


@judges_value(KernelKnobs, NUMA_BALANCING, reads=(*_KNOBS, "numa", "cpu"), unread=_SETTINGS, borrowed="kernel")
def numa_balancing(host: Subject, knobs: KernelKnobs) -> Told:
    """Judge whether the kernel moves pages between NUMA nodes; some kernels cannot."""
    numa, cpu = host.fact("numa", Numa), host.fact("cpu", Cpu)
    nodes = len(numa.nodes) if numa else (cpu.numa_nodes if cpu else None) or 1
    if knobs.numa_balancing is None:
        return Told(right=True, actual="this kernel has none")
    return Told(nodes < 2 or knobs.numa_balancing == 0, f"{knobs.numa_balancing} with {nodes} NUMA nodes")


_SLOW_CLOCKS = ("hpet", "acpi_pm", "jiffies", "refined-jiffies")
CLOCKSOURCE = Check(
    "clocksource",
    fires="warning: one that is slow to read (hpet, acpi_pm)",
    expected="one that is read without leaving the processor (tsc, kvm-clock, arch_sys_counter)",
    remedy="look in `dmesg` why the kernel gave the TSC up; a firmware update or a reboot brings it back",
)


@judges_value(KernelKnobs, CLOCKSOURCE, reads=_KNOBS, unread=_SETTINGS, borrowed="kernel")
def clocksource(_: Subject, knobs: KernelKnobs) -> Told:
    """Programs read the clock thousands of times in each step."""
    if knobs.clocksource is None:
        return Told(None, remedy="look at /sys/devices/system/clocksource/clocksource0 there")
    return Told(knobs.clocksource not in _SLOW_CLOCKS, knobs.clocksource)


_UNTRANSLATED = {"iommu=pt", "iommu.passthrough=1", "iommu=off", "intel_iommu=off", "amd_iommu=off"}
IOMMU = Check(
    "iommu",
    fires="warning: translating on bare metal with GPUs",
    expected="off, or passed through (iommu=pt)",
    remedy="add iommu=pt to the kernel's command line and reboot: with translation, peers go through the root complex",
)


@judges_value(
    KernelKnobs,
    IOMMU,
    reads=(*_KNOBS, "cpu"),
    unread="off, or passed through",
    borrowed="kernel",
    where=lambda host: bool(host.gpus),
)
def iommu(host: Subject, knobs: KernelKnobs) -> Told | None:
    """Report an IOMMU that translates traffic between devices, on bare metal with GPUs."""
    cpu = host.fact("cpu", Cpu)
    if cpu and cpu.hypervisor:
        return None
    if knobs.iommu_groups is None or knobs.cmdline is None:
        return Told(None, remedy="look at /proc/cmdline and /sys/kernel/iommu_groups there")
    passed = not _UNTRANSLATED.isdisjoint(knobs.cmdline.split())
    actual = f"{knobs.iommu_groups} groups, command line {'passes through' if passed else 'without iommu=pt'}"
    return Told(passed or knobs.iommu_groups == 0, actual)


# kernel.org, admin-guide/tainted-kernels: those that tell of trouble, not of a licence
_TAINTS = {4: "a machine check", 5: "a bad page", 7: "an oops", 14: "a soft lockup"}
KERNEL_TAINT = Check(
    "kernel_taint",
    fires="warning: marks of an oops, a machine check, a bad page or a lockup",
    expected="no mark of an oops, a machine check, a bad page or a lockup",
    remedy="read `dmesg` there for what happened, then reboot: this kernel cannot be trusted",
    action="reboot",
)


@judges_value(KernelKnobs, KERNEL_TAINT, reads=_KNOBS, unread=_SETTINGS, borrowed="kernel")
def taint(_: Subject, knobs: KernelKnobs) -> Told:
    """Report taint flags that tell of trouble in the kernel."""
    if knobs.taint is None:
        return Told(None, remedy="look at /proc/sys/kernel/tainted there")
    marks = [name for bit, name in _TAINTS.items() if knobs.taint >> bit & 1]
    return Told(not marks, ": ".join(filter(None, [str(knobs.taint), ", ".join(marks)])))


MEMORY_UNCORRECTED = Check(
    "memory_uncorrected",
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
    fires="warning: several processes in uninterruptible sleep, or one that talks to the GPUs' driver",
    remedy="find the device or file system that they wait for (`cat /proc/PID/stack`); "
    "if it is gone, only a reboot helps",
    thresholds=(STUCK_PROCESSES_LIMIT,),
)


@judges_value(Processes, STUCK_PROCESSES, reads=("processes",), unread="the processes' states")
def stuck_processes(host: Subject, processes: Processes) -> Told:
    """Judge hanging processes; numbers below the threshold are not shown, since they change from moment to moment."""
    stuck, most = processes.uninterruptible, host.threshold(STUCK_PROCESSES_LIMIT)
    old = [task for task in stuck if task.age_s is None or task.age_s >= _ANSWERED_S]
    of_driver = [task for task in old if task.name.startswith(_OF_DRIVER)]
    names = [
        f"{task.name} ({task.pid}{f' in {task.waits_in}' if task.waits_in else ''})"
        for task in sorted(stuck, key=lambda task: task not in of_driver)[:4]
    ]
    expected = f"fewer than {most:g} processes in uninterruptible sleep, none of which talks to the GPUs' driver"
    is_fine = len(stuck) < most and not of_driver
    return Told(is_fine, "no more than that" if is_fine else f"{len(stuck)} processes: {', '.join(names)}", expected)


LOAD_PER_THREAD_LIMIT = Threshold(
    "load_per_thread", 2.0, "an idle node's load is near nothing; above this ranks wait for processors"
)
LOAD = Check(
    "load",
    fires="warning: more than the processors can run",
    remedy="look who runs there (`top`), and for orphans of ended jobs: `nodectl jobs list`",
    thresholds=(LOAD_PER_THREAD_LIMIT,),
)


# the load of a lab host, dressed or not, is the machine's
@judges_value(
    Processes,
    LOAD,
    reads=("processes", "lab", "cpu"),
    unread="the processes' states",
    where=lambda host: not host.shares("cpu"),
)
def load(host: Subject, processes: Processes) -> Told | None:
    """Report a load that leaves too few processors to ranks."""
    cpu = host.fact("cpu", Cpu)
    if cpu is None:
        return None
    most = host.threshold(LOAD_PER_THREAD_LIMIT) * cpu.threads
    expected = f"{most:g} or less, over five minutes, with {counted(cpu.threads, 'thread')}"
    return Told(processes.load_5 <= most, f"{processes.load_5:g}", expected)
