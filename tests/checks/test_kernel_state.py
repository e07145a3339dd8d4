"""The kernel's settings beside its sysctls, its taint, memory errors and processes."""

from dataclasses import replace

from nodectl.checks.kernel import state as kernel_state
from nodectl.facts.kernel import KernelKnobs
from nodectl.facts.look import Lab
from nodectl.facts.processes import Process, Processes
from nodectl.facts.processors import Cpu, MemoryController, MemoryErrors, Numa, NumaNode
from tests.checks.table import ABSENT, Case, dgx, found, quiet

CPU = Cpu("x", "x86_64", 2, 8, 16, 2)
GOOD = KernelKnobs(
    cmdline="BOOT_IMAGE=/vmlinuz iommu=pt",
    transparent_hugepage="madvise",
    transparent_hugepage_defrag="madvise",
    governors={"performance": 16},
    numa_balancing=0,
    clocksource="tsc",
    iommu_groups=40,
    taint=4097,
)
TWO = Numa((NumaNode(0, "0-7", 1, 1), NumaNode(1, "8-15", 1, 1)))
CALM = Processes(1.0, 1.0, (), 200)


def knobs(**changes: object) -> dict[str, object]:
    return {"kernel_knobs": replace(GOOD, **changes), "cpu": CPU, "numa": TWO}  # type: ignore[arg-type]


def errors(corrected: int, uncorrected: int = 0) -> dict[str, object]:
    return {"memory_errors": MemoryErrors((MemoryController("mc0", corrected, uncorrected),))}


def state(**changes: object) -> dict[str, object]:
    return {"processes": replace(CALM, **changes), "cpu": CPU}  # type: ignore[arg-type]


STUCK = tuple(Process(pid, "cp", "nfs_wait") for pid in range(5))
CASES = [
    Case("cpu_governor", "ok", knobs(governors={})),
    Case("cpu_governor", "warning", knobs(governors={"performance": 8, "powersave": 8})),
    Case("huge_pages", "ok", knobs(transparent_hugepage="always")),
    Case("huge_pages", "warning", knobs(transparent_hugepage="always", transparent_hugepage_defrag="always")),
    Case("huge_pages", "unknown", knobs(transparent_hugepage_defrag=None)),
    Case("numa_balancing", "ok", knobs(numa_balancing=None)),
    Case("numa_balancing", "ok", {**knobs(numa_balancing=1), "numa": Numa((NumaNode(0, "0-7", 1, 1),))}),
    Case("numa_balancing", "warning", knobs(numa_balancing=1)),
    Case("clocksource", "warning", knobs(clocksource="hpet")),
    Case("clocksource", "unknown", knobs(clocksource=None)),
    Case("iommu", "ok", knobs(), dgx()),
    Case("iommu", "ok", knobs(cmdline="quiet", iommu_groups=0), dgx()),
    Case("iommu", "warning", knobs(cmdline="quiet"), dgx()),
    Case("iommu", "unknown", knobs(iommu_groups=None), dgx()),
    Case("iommu", "nothing", knobs(cmdline="quiet")),
    Case("iommu", "nothing", {**knobs(cmdline="quiet"), "cpu": replace(CPU, hypervisor="KVM")}, dgx()),
    Case("kernel_taint", "warning", knobs(taint=4097 | 1 << 4), action="reboot"),
    Case("kernel_taint", "unknown", knobs(taint=None)),
    Case("memory_uncorrected", "ok", errors(0)),
    Case("memory_uncorrected", "ok", {"memory_errors": MemoryErrors(())}),
    Case("memory_uncorrected", "failed", errors(0, 1), subject="mc0", action="drain"),
    Case("memory_uncorrected", "nothing", {"memory_errors": ABSENT}),
    Case("memory_corrected", "ok", errors(500)),
    Case("memory_corrected", "warning", errors(5000)),
    Case("memory_corrected", "ok", errors(5000), before={"edac.mc0.corrected": 4999}),
    Case("memory_corrected", "warning", errors(50), before={"edac.mc0.corrected": 0}),
    Case("stuck_processes", "ok", state()),
    Case("stuck_processes", "warning", state(uninterruptible=STUCK)),
    Case("stuck_processes", "warning", state(uninterruptible=(Process(9, "nvidia-smi"),))),
    Case("stuck_processes", "warning", state(uninterruptible=(Process(9, "nv-hostengine", None, 30),))),
    Case("stuck_processes", "ok", state(uninterruptible=(Process(9, "nvidia-smi", "rm_init", 3),))),
    Case("stuck_processes", "ok", state(uninterruptible=(Process(9, "jbd2/md0-8"),))),
    Case("load", "ok", state(load_1=99.0)),
    Case("load", "warning", state(load_5=33.0)),
]


QUIET = quiet(knobs(), checks="cpu_governor huge_pages numa_balancing clocksource kernel_taint")


def test_a_lab_host_is_not_judged_by_the_machines_kernel() -> None:
    facts = {**knobs(taint=16, clocksource="hpet"), **errors(0, 9), **state(load_5=999.0)}
    lab = {**facts, "lab": Lab("lab", ("cpu", "memory", "clock", "kernel", "sys"))}
    assert {each.check for each in found(kernel_state, Case("", "", lab))} == {"stuck_processes"}
    dressed = {**facts, "lab": Lab("lab", ("cpu", "memory", "kernel"), "dgx-a100")}
    checks = {each.check for each in found(kernel_state, Case("", "", dressed))}
    assert {"kernel_taint", "memory_uncorrected"} <= checks and "load" not in checks


def test_what_is_below_its_threshold_is_said_alike_a_moment_later() -> None:
    quiet, restless = (
        [(each.check, each.actual) for each in found(kernel_state, Case("", "", facts))]
        for facts in (state(), state(uninterruptible=STUCK[:1]))
    )
    assert quiet == restless
