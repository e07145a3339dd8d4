"""Checks that nothing runs on the GPUs of a node that waits for its next job."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import takewhile

from nodectl.checks.check import Check, Subject, Threshold, judges
from nodectl.checks.gpu.rules import gpus_of, of_gpu
from nodectl.common.counting import counted
from nodectl.common.few import few
from nodectl.facts.gpus import Gpu
from nodectl.facts.parsers.nvidia.smi_q.fields import GpuProcess
from nodectl.facts.processes import JobProcesses
from nodectl.facts.services import SlurmNode
from nodectl.model.finding import Finding
from nodectl.model.status import Status

ORDER = 90

GPU_MEMORY_HELD_MIB_LIMIT = Threshold("gpu_memory_held_mib", 1024, "the driver itself keeps some hundreds of MiB")
GPU_PROCESSES = Check(
    "gpu_processes",
    fires="warning: a process computes on a GPU, and is of no job of Slurm's or nodectl's",
    expected="none",
    remedy="is it no job of yours: `nodectl jobs list`, then end it by its number (`fuser -v /dev/nvidia*` there as "
    "root, if it has no name)",
)
GPU_MEMORY_HELD = Check(
    "gpu_memory_held",
    fires="warning: memory in use, and no process",
    expected="none",
    remedy="a process not seen here holds it: `fuser -v /dev/nvidia*` there as root; else reset the GPU",
    thresholds=(GPU_MEMORY_HELD_MIB_LIMIT,),
)


# a job runs on the node, or ends there
_SLURM_AT_WORK = {"ALLOCATED", "MIXED", "COMPLETING"}


@judges(GPU_PROCESSES, GPU_MEMORY_HELD, reads=("gpus", "job_processes", "slurm"))
def processes(host: Subject) -> Iterator[Finding]:
    """Report compute processes, and memory that is used without a process."""
    devices = gpus_of(host)
    if not devices:
        return
    telling = [gpu for gpu in devices if gpu.processes is not None]
    if not telling:
        actual = devices[0].unavailable.get("processes", "not printed")
        remedy = "run `nvidia-smi --query-compute-apps=pid,name --format=csv` there"
        for check in (GPU_PROCESSES, GPU_MEMORY_HELD):
            yield host.finding(check, Status.UNKNOWN, actual=actual, remedy=remedy)
        return
    for check, shown, expected, actual in (
        (GPU_PROCESSES, _users, "none", f"none on {counted(len(telling), 'GPU')}"),
        (GPU_MEMORY_HELD, _held, "memory free", "memory free"),
    ):
        faults = (of_gpu(host, check, gpu, Status.WARNING, text) for gpu in telling if (text := shown(host, gpu)))
        yield from host.all_of(check, faults, expected=expected, actual=actual)


def _users(host: Subject, gpu: Gpu) -> str:
    return few([_shown(host, process) for process in _of_no_job(host, gpu)])


def _held(host: Subject, gpu: Gpu) -> str:
    used = gpu.memory_used_mib
    held = used is not None and not gpu.processes and used > host.threshold(GPU_MEMORY_HELD_MIB_LIMIT)
    return f"{used} MiB in use by no process" if held else ""


def _of_no_job(host: Subject, gpu: Gpu) -> list[GpuProcess]:
    """Return computing processes of no job, each once; Slurm's state decides if their owners cannot be read."""
    owned, node = host.fact("job_processes", JobProcesses), host.fact("slurm", SlurmNode)
    at_work = node is not None and _SLURM_AT_WORK & set(node.states)
    if at_work and (owned is None or not owned.slurm):
        return []
    listed = set(owned.all) if owned else set()
    for before in takewhile(lambda other: other is not gpu, gpus_of(host)):
        listed |= {process.pid for process in _compute(before)}
    return [process for process in _compute(gpu) if process.pid not in listed]


def _compute(gpu: Gpu) -> list[GpuProcess]:
    """Return the processes that compute: a display server's are of type G."""
    return [process for process in gpu.processes or () if process.type is None or "C" in process.type]


def _shown(host: Subject, process: GpuProcess) -> str:
    used = [one.memory_mib or 0 for gpu in gpus_of(host) for one in _compute(gpu) if one.pid == process.pid]
    memory = f"{sum(used)} MiB" if sum(used) else ""
    return " ".join(filter(None, [str(process.pid), process.name, memory, f"on {len(used)} GPUs" * (len(used) > 1)]))
