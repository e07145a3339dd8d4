"""Checks that look at one value of each GPU, and how a value that is refused, missing or not told counts."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from nodectl.checks.check import Check, Judgement, Subject, Threshold
from nodectl.facts.gpus import Gpu, Gpus
from nodectl.model.finding import Finding
from nodectl.model.status import Status

REPORT = "nvidia-smi-q"
SET_BY_ROLE = "`nodectl provision --tags gpu_settings`"
# the GPU has no such thing; any other refusal is a failure to look
_HAS_NONE = ("", "n/a", "not supported", "requested functionality has been deprecated")


class Fault(NamedTuple):
    """A fault of one GPU; empty fields are the check's."""

    status: Status
    actual: str
    action: str = ""
    remedy: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class GpuJudgement(Judgement[Subject]):
    """A judgement of one value of each GPU: `field` of nvidia-smi's report."""

    field: str = ""


GpuFunction = Callable[[Subject, Gpu], Fault | None]


def gpu_check(
    check: str,
    field: str,
    *,
    fires: str,
    expected: str,
    remedy: str,
    action: str = "none",
    thresholds: tuple[Threshold, ...] = (),
    roles: tuple[str, ...] = (),
    only_if: Callable[[Subject], bool] | None = None,
    reads: tuple[str, ...] = (),
) -> Callable[[GpuFunction], GpuJudgement]:
    """Register a function of one GPU as the judge of `check`; it is asked where the GPU tells its value `field`.

    `reads` are the facts that it reads beside the GPUs' own.
    """
    declared = Check(check, fires, expected, remedy, action, thresholds, roles)

    def register(function: GpuFunction) -> GpuJudgement:
        def judge(host: Subject) -> Iterator[Finding]:
            devices = gpus_of(host) if only_if is None or only_if(host) else ()
            return _each_gpu(host, devices, declared, field, function)

        return GpuJudgement((declared,), ("gpus", *reads), judge, field=field)

    return register


def gpu_flag(check: str, field: str, actual: str, remedy: str, action: str) -> GpuJudgement:
    """Return the check of a value that is true where something is wrong."""
    return gpu_check(check, field, fires=actual, expected="nothing of the kind", remedy=remedy, action=action)(
        lambda host, gpu: Fault(Status.FAILED, actual) if getattr(gpu, field) else None
    )


def is_failure(refusal: str) -> bool:
    """Return whether a refusal is a failure to look; the others say that the GPU has no such thing."""
    return refusal.strip("[] ").lower() not in _HAS_NONE


def name_of(gpu: Gpu) -> str:
    """Return a name that stays over boots: where the GPU sits."""
    return f"{gpu.label} ({gpu.bus_id})" if gpu.index is not None and gpu.bus_id else gpu.label


def identity(gpu: Gpu) -> str:
    """Return the numbers by which a card that comes back from repair is known again."""
    numbers = (("UUID", gpu.uuid), ("serial", gpu.serial), ("bus", gpu.bus_id))
    return ", ".join(f"{name} {value}" for name, value in numbers if value)


def by_tuning(host: Subject, gpu: Gpu, name: str, now: object) -> tuple[Fault | None] | None:
    """Return the judgement by the tuning's setting `name`, which the role sets; None without one."""
    wanted = getattr(host.wanted.tuning.gpu, name) if host.wanted else None
    if wanted is None:
        return None
    if now == wanted.value:
        return (None,)
    if gpu.display_active:
        return (Fault(Status.SKIPPED, "a display uses this GPU: its settings are left alone"),)
    is_, should = ("on" if one is True else "off" if one is False else one for one in (now, wanted.value))
    return (Fault(Status.FAILED, f"{is_}, the tuning says {should}", "none", SET_BY_ROLE),)


def gpus_of(host: Subject) -> tuple[Gpu, ...]:
    """Return the GPUs of a full report; empty without one, which the check gpu_report tells."""
    gpus = host.fact("gpus", Gpus)
    return gpus.devices if gpus is not None and gpus.source == REPORT else ()


def _each_gpu(
    host: Subject, devices: Sequence[Gpu], check: Check, field: str, fault_of: GpuFunction
) -> Iterator[Finding]:
    if not devices:
        return
    is_told = [getattr(gpu, field) is not None for gpu in devices]
    telling = is_told.count(True)
    kinds = {gpu.name for gpu, tells in zip(devices, is_told, strict=True) if tells}
    found = [
        (gpu, (fault_of(host, gpu) if tells else None) or _untold(gpu, field, tells, kinds))
        for gpu, tells in zip(devices, is_told, strict=True)
    ]
    faults = [
        of_gpu(host, check, gpu, fault.status, fault.actual, remedy=fault.remedy, action=fault.action)
        for gpu, fault in found
        if fault
    ]
    if faults or telling:
        actual = f"{telling} of {len(devices)} GPUs" if telling < len(devices) else f"all {len(devices)} GPUs"
        yield from host.all_of(check, faults, actual=actual)
    else:
        actual = f"nvidia-smi: {devices[0].unavailable.get(field, 'not printed')}"
        yield host.finding(check, Status.SKIPPED, actual=actual)


def of_gpu(
    host: Subject,
    check: Check,
    gpu: Gpu,
    status: Status,
    actual: str,
    *,
    expected: str = "",
    remedy: str = "",
    action: str = "",
) -> Finding:
    """Return a finding of one GPU, with what it is known by."""
    return host.finding(
        check,
        status,
        name_of(gpu),
        expected=expected,
        actual=actual,
        remedy=remedy,
        action=action,
        evidence=identity(gpu),
    )


def _untold(gpu: Gpu, field: str, tells: bool, kinds: Collection[str | None]) -> Fault | None:
    """Return a value that is refused, in part or whole, or that GPUs of its kind have; None if it has no such thing."""
    refusal = gpu.unavailable.get(field, "")
    # what is cut into slices does not tell all that whole ones do
    siblings_tell = (bool(kinds) and not refusal) or (gpu.name in kinds and not gpu.mig_mode)
    if not is_failure(refusal) and (tells or not siblings_tell):
        return None
    remedy = "run `nvidia-smi -q` there; a GPU that refuses values may need a reset"
    actual = f"nvidia-smi says {refusal!r}" if refusal else "missing from its part of the report"
    return Fault(Status.UNKNOWN, actual, "none", remedy)
