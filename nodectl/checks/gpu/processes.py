"""What runs on the GPUs: on a node that waits for its next job, nothing should."""

from __future__ import annotations

from collections.abc import Iterator

from nodectl.checks.check import Check, Subject, Threshold, judges
from nodectl.checks.gpu.rules import gpus_of, identity, name_of
from nodectl.facts.gpus import Gpu
from nodectl.model.finding import Finding
from nodectl.model.status import Status
from nodectl.parsers.nvidia.smi_q.fields import GpuProcess

ORDER = 90

# a process that ended, or is of another PID namespace, has no name here
_NAMELESS = ("[not found]", "", "-")
_SHOWN = 4


GPU_MEMORY_HELD_MIB_LIMIT = Threshold("gpu_memory_held_mib", 1024, "the driver itself keeps some hundreds of MiB")
GPU_PROCESSES = Check("gpu_processes", looks_at="nvidia-smi -q", fires="warning: a process computes on a GPU")
GPU_ORPHANS = Check(
    "gpu_orphans", looks_at="nvidia-smi -q", fires="warning: a process that this host cannot name holds a GPU"
)
GPU_MEMORY_HELD = Check(
    "gpu_memory_held",
    looks_at="nvidia-smi -q",
    fires="warning: memory in use, and no process",
    thresholds=(GPU_MEMORY_HELD_MIB_LIMIT,),
)


@judges(GPU_PROCESSES, GPU_ORPHANS, GPU_MEMORY_HELD, reads=("gpus",))
def processes(host: Subject) -> Iterator[Finding]:
    """Compute processes by name; those that nobody can name; memory that is held without any."""
    devices = gpus_of(host)
    if not devices:
        return
    told = [gpu for gpu in devices if gpu.processes is not None]
    if not told:
        said = devices[0].unavailable.get("processes", "not printed")
        remedy = "run `nvidia-smi --query-compute-apps=pid,name --format=csv` there"
        for check in (GPU_PROCESSES, GPU_ORPHANS, GPU_MEMORY_HELD):
            yield host.finding(check, Status.UNKNOWN, expected="none", actual=said, remedy=remedy)
        return
    yield from host.all_of(GPU_PROCESSES, _named(host, told), expected="none", actual=f"none on {len(told)} GPUs")
    yield from host.all_of(GPU_ORPHANS, _orphans(host, told), expected="none", actual="none")
    yield from host.all_of(GPU_MEMORY_HELD, _held(host, told), expected="memory free", actual="memory free")


def _named(host: Subject, devices: list[Gpu]) -> Iterator[Finding]:
    for gpu in devices:
        running = [each for each in _compute(gpu) if not _is_nameless(each)]
        if running:
            remedy = "is it no job of yours: `nodectl jobs list`, then end it by its number"
            yield _finding(host, GPU_PROCESSES, gpu, _shown(running), remedy)


def _orphans(host: Subject, devices: list[Gpu]) -> Iterator[Finding]:
    for gpu in devices:
        left = [each for each in _compute(gpu) if _is_nameless(each)]
        if left:
            remedy = "of a container, or of a job whose workers live on: `fuser -v /dev/nvidia*` there as root"
            yield _finding(host, GPU_ORPHANS, gpu, _shown(left), remedy)


def _held(host: Subject, devices: list[Gpu]) -> Iterator[Finding]:
    for gpu in devices:
        used = gpu.memory_used_mib
        if used is not None and not gpu.processes and used > host.threshold(GPU_MEMORY_HELD_MIB_LIMIT):
            remedy = "a process not seen here holds it: `fuser -v /dev/nvidia*` there as root; else reset the GPU"
            yield _finding(host, GPU_MEMORY_HELD, gpu, f"{used} MiB in use by no process", remedy)


def _compute(gpu: Gpu) -> list[GpuProcess]:
    """Those that compute: a display server's are of type G."""
    return [each for each in gpu.processes or () if each.type is None or "C" in each.type]


def _is_nameless(process: GpuProcess) -> bool:
    return (process.name or "").strip().lower() in _NAMELESS


def _shown(found: list[GpuProcess]) -> str:
    texts = [
        f"{each.pid}" + (f" {each.name}" if each.name else "") + (f" {each.memory_mib} MiB" if each.memory_mib else "")
        for each in found[:_SHOWN]
    ]
    more = len(found) - _SHOWN
    return ", ".join(texts) + (f" and {more} more" if more > 0 else "")


def _finding(host: Subject, check: Check, gpu: Gpu, actual: str, remedy: str) -> Finding:
    return host.finding(
        check, Status.WARNING, name_of(gpu), expected="none", actual=actual, remedy=remedy, evidence=identity(gpu)
    )
