"""What runs on the GPUs: on a node that waits for its next job, nothing should."""

from __future__ import annotations

from collections.abc import Iterator

from nodectl.checks.base import About, Check, Subject
from nodectl.checks.gpu.rules import gpus_of, identity, name_of
from nodectl.model.finding import Finding
from nodectl.model.gpus import Gpu, GpuProcess
from nodectl.model.status import Status

# a process that ended, or is of another PID namespace, has no name here
_NAMELESS = ("[not found]", "", "-")
_SHOWN = 4


def processes(host: Subject) -> Iterator[Finding]:
    """Compute processes by name; those that nobody can name; memory that is held without any."""
    devices = gpus_of(host)
    if not devices:
        return
    told = [gpu for gpu in devices if gpu.processes is not None]
    if not told:
        said = devices[0].unavailable.get("processes", "not printed")
        remedy = "run `nvidia-smi --query-compute-apps=pid,name --format=csv` there"
        for check in ("gpu_processes", "gpu_orphans", "gpu_memory_held"):
            yield host.finding(check, Status.UNKNOWN, expected="none", actual=said, remedy=remedy)
        return
    yield from host.all_of("gpu_processes", _named(host, told), expected="none", actual=f"none on {len(told)} GPUs")
    yield from host.all_of("gpu_orphans", _orphans(host, told), expected="none", actual="none")
    yield from host.all_of("gpu_memory_held", _held(host, told), expected="memory free", actual="memory free")


def _named(host: Subject, devices: list[Gpu]) -> Iterator[Finding]:
    for gpu in devices:
        running = [each for each in _compute(gpu) if not _is_nameless(each)]
        if running:
            remedy = "is it no job of yours: `nodectl jobs list`, then end it by its number"
            yield _finding(host, "gpu_processes", gpu, _shown(running), remedy)


def _orphans(host: Subject, devices: list[Gpu]) -> Iterator[Finding]:
    for gpu in devices:
        left = [each for each in _compute(gpu) if _is_nameless(each)]
        if left:
            remedy = "of a container, or of a job whose workers live on: `fuser -v /dev/nvidia*` there as root"
            yield _finding(host, "gpu_orphans", gpu, _shown(left), remedy)


def _held(host: Subject, devices: list[Gpu]) -> Iterator[Finding]:
    for gpu in devices:
        used = gpu.memory_used_mib
        if used is not None and not gpu.processes and used > host.threshold("gpu_memory_held_mib"):
            remedy = "a process not seen here holds it: `fuser -v /dev/nvidia*` there as root; else reset the GPU"
            yield _finding(host, "gpu_memory_held", gpu, f"{used} MiB in use by no process", remedy)


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


def _finding(host: Subject, check: str, gpu: Gpu, actual: str, remedy: str) -> Finding:
    return host.finding(
        check, Status.WARNING, name_of(gpu), expected="none", actual=actual, remedy=remedy, evidence=identity(gpu)
    )


CHECKS: tuple[Check, ...] = (processes,)
ABOUT = (
    About("gpu_processes", "nvidia-smi -q", "warning: a process computes on a GPU"),
    About("gpu_orphans", "nvidia-smi -q", "warning: a process that this host cannot name holds a GPU"),
    About("gpu_memory_held", "nvidia-smi -q", "warning: memory in use, and no process"),
)
