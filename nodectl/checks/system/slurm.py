"""Whether Slurm would give this node work, and as much of it as the node has."""

from __future__ import annotations

import re
from collections.abc import Iterator

from nodectl.checks.check import Check, Subject, judges_fact, warning_unless
from nodectl.facts.processors import Cpu, Memory
from nodectl.facts.services import SlurmNode
from nodectl.model.finding import Finding
from nodectl.model.status import Status

ORDER = 240

_DRAINED = {"DRAIN", "DRAINED", "DRAINING"}
_AWAY = {"DOWN", "FAIL", "FAILING", "ERROR", "NOT_RESPONDING", "NO_RESPOND", "INVALID_REG", "POWERED_DOWN"}


SLURM_STATE = Check(
    "slurm_state",
    looks_at="scontrol",
    fires="failed: down or not responding; warning: drained",
    expected="a state in which jobs start",
)
_CAUSES = (
    *("driver_loaded", "driver_library", "gpu_lost", "gpus", "cpu_offline", "cpu_sockets", "cpu_cores", "cpu_threads"),
    *("memory_uncorrected", "memory_size", "memory_balance", "numa_nodes", "fleet_gpus", "fleet_cpu", "fleet_memory"),
)
SLURM_RESOURCES = Check(
    "slurm_resources",
    looks_at="scontrol",
    fires="warning: Slurm's CPUs, memory or GPUs are not the node's",
    follows=_CAUSES,
)


# whoever wrote the line saw more: a part that failed is not to be written off
_LOST = (
    "Slurm was told of more {name} than there are: look whether a part is lost (`ipmitool sel list`, `dmesg`); "
    "only if the node was built so: {correct}"
)


@judges_fact(
    SlurmNode,
    *(SLURM_STATE, SLURM_RESOURCES),
    reads=("slurm", "lab", "cpu", "memory"),
    unread=SLURM_STATE.expected,
)
def state(host: Subject, node: SlurmNode) -> Iterator[Finding]:
    """Neither drained nor down; absent where the node is none of Slurm's."""
    states = set(node.states)
    away = states & _AWAY or not node.responding
    status = Status.FAILED if away else Status.WARNING if states & (_DRAINED | {"REBOOT"}) else Status.OK
    reason = f": {node.reason}" if node.reason else ""
    actual = f"{'+'.join(node.states)}{'' if node.responding else ', not responding'}{reason}"
    remedy = f"when it is mended: `scontrol update nodename={node.name} state=resume`"
    if not node.responding:
        remedy = f"look at slurmd there (`systemctl status slurmd`); {remedy}"
    yield host.finding(SLURM_STATE, status, actual=actual, remedy=remedy)
    yield from _resources(host, node)


def _resources(host: Subject, node: SlurmNode) -> Iterator[Finding]:
    """What slurm.conf says of the node, against what it has."""
    cpu = None if host.borrows("cpu") else host.fact("cpu", Cpu)
    memory = None if host.borrows("memory") else host.fact("memory", Memory)
    correct = f"correct the node's line in slurm.conf and gres.conf (`slurmd -C` on {host.host} prints it)"
    rows: list[tuple[str, bool, bool, str, str]] = []
    if cpu and node.cpus is not None:
        # one CPU a core, or one a thread: both are usual
        right, more = node.cpus in (cpu.threads, cpu.cores), node.cpus > cpu.threads
        rows.append(("CPUs", right, more, f"{cpu.threads}", f"{node.cpus}"))
    if memory and node.memory_mib is not None:
        enough = node.memory_mib <= memory.total_mib
        rows.append(("memory", enough, not enough, f"{memory.total_mib} MiB or less", f"{node.memory_mib} MiB"))
    if host.gpus:
        number = gpus_of(node.gres)
        rows.append(("GPUs", number == host.gpus, number > host.gpus, f"{host.gpus}", f"{number}"))
    for name, right, more, expected, actual in rows:
        remedy = _LOST.format(name=name, correct=correct) if more else correct
        yield host.finding(
            SLURM_RESOURCES, warning_unless(right), name, expected=expected, actual=actual, remedy=remedy
        )


def gpus_of(gres: str | None) -> int:
    """How many GPUs a text such as `gpu:a100:8(S:0-1),nic:2` has."""
    return sum(map(int, re.findall(r"(?:^|,)gpu(?::[^:,()]+)??:([0-9]{1,6})(?=[(,]|$)", gres or "")))
