"""Whether the GPUs are all there, and which: number, model, memory, firmware, each once; and what the driver says."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

from nodectl.checks.check import Check, Subject, Threshold, failed_unless, judges, warning_unless
from nodectl.checks.gpu.rules import REPORT, gpus_of, identity, is_failure, name_of
from nodectl.facts.gpus import Gpu, Gpus
from nodectl.model.facts import Unread
from nodectl.model.finding import Finding
from nodectl.model.status import Status

ORDER = 40

_MIB_PER_GIB = 1024


GPUS = Check(
    "gpus",
    looks_at="nvidia-smi",
    fires="not as many as the hardware profile names, or one is lost",
    remedy="run `nvidia-smi -L` there; `dmesg` there says why one is gone",
)


@judges(GPUS, reads=("gpus",))
def count(host: Subject) -> Iterator[Finding]:
    """As many as the hardware profile names, none of them lost; no GPUs wanted, none looked for."""
    wanted = host.wanted.hardware.gpus if host.wanted else None
    found = host.facts.get("gpus")
    if not wanted:
        return
    expected = f"{wanted} GPUs"
    if isinstance(found, Unread):
        actual = f"{found.kind}: {found.reason}"
        yield host.finding(GPUS, Status.UNKNOWN, expected=expected, actual=actual)
    if isinstance(found, Gpus):
        lost = f"; lost: {', '.join(found.lost)}" if found.lost else ""
        right = found.count == wanted and not found.lost
        action = "none" if right else "reboot" if found.count < wanted else "none"
        actual = f"{found.count}{lost}"
        yield host.finding(GPUS, failed_unless(right), expected=expected, actual=actual, action=action)


GPU_REPORT = Check("gpu_report", looks_at="nvidia-smi -q", fires="unknown: not read, or cut", expected="nvidia-smi -q")
GPU_LOST = Check(
    "gpu_lost",
    looks_at="nvidia-smi",
    fires="the driver names a GPU that it cannot reach",
    expected="all reachable",
    remedy="drain and reboot the node; comes it back lost, check its power cables and have it replaced",
    action="reboot",
)


@judges(GPU_REPORT, GPU_LOST, reads=("gpus",))
def report(host: Subject) -> Iterator[Finding]:
    """Without the full report nothing below can be told; GPUs that the driver names and cannot reach are lost."""
    found = host.facts.get("gpus")
    if host.wanted is not None and host.wanted.hardware.gpus == 0:
        return
    if isinstance(found, Unread):
        # with GPUs in the profile the check gpus says it already
        yield from () if _wants_gpus(host) else host.unknown(found, "nvidia-smi's report", GPU_REPORT, GPU_LOST)
        return
    if not isinstance(found, Gpus):
        return
    if found.source != REPORT and found.count:
        actual = f"only {found.source} was read"
        remedy = "run `nvidia-smi -q` there: without it, memory, clocks, power and links of the GPUs are not known"
        yield host.finding(GPU_REPORT, Status.UNKNOWN, actual=actual, remedy=remedy)
    elif found.attached is not None and found.attached > found.count + len(found.lost):
        remedy = "run `nvidia-smi -q` there once more"
        expected, actual = f"{found.attached} attached GPUs", f"its report ends after {found.count}"
        yield host.finding(GPU_REPORT, Status.UNKNOWN, expected=expected, actual=actual, remedy=remedy)
    elif found.count:
        yield host.finding(GPU_REPORT, Status.OK, actual=f"{found.count} GPUs")
    yield from host.all_of(GPU_LOST, _lost(host, found), actual=f"{found.count} reachable")


def _wants_gpus(host: Subject) -> bool:
    return bool(host.wanted and host.wanted.hardware.gpus)


def _lost(host: Subject, found: Gpus) -> Iterator[Finding]:
    for bus_id in found.lost:
        yield host.finding(
            GPU_LOST,
            Status.FAILED,
            f"GPU {bus_id}" if ":" in bus_id[:5] else "",
            expected="reachable",
            actual="the driver names it and cannot reach it",
            evidence=bus_id,
        )


GPU_MEMORY_PERCENT_LIMIT = Threshold(
    "gpu_memory_percent", 92, "with ECC in the memory itself (L40S, A10) a sixteenth is not for use"
)
GPU_MODEL = Check(
    "gpu_model",
    looks_at="nvidia-smi -q",
    fires="another model than the hardware profile's",
    remedy="name the right hardware profile (nodectl_hardware), or look for an exchanged card",
)
GPU_MEMORY = Check(
    "gpu_memory",
    looks_at="nvidia-smi -q",
    fires="less memory than the profile's",
    remedy="reset the GPU; stays it small, a part of its memory has failed: have it replaced",
    thresholds=(GPU_MEMORY_PERCENT_LIMIT,),
)
GPU_MIXED = Check(
    "gpu_mixed",
    looks_at="nvidia-smi -q",
    fires="GPUs of several models in one node",
    expected="one model",
    remedy="ranks on unlike GPUs wait for the slowest: give the node GPUs of one kind, or use those of one kind",
)


@judges(GPU_MODEL, GPU_MEMORY, GPU_MIXED, reads=("gpus",))
def kind(host: Subject) -> Iterator[Finding]:
    """The profile's model and memory, and all alike."""
    devices, wanted = gpus_of(host), host.wanted.hardware.gpu if host.wanted else None
    if not devices:
        return
    if wanted is not None:
        expected = wanted.model
        faults = (_model(host, gpu, wanted.model) for gpu in devices if gpu.name != wanted.model)
        yield from host.all_of(GPU_MODEL, faults, expected=expected, actual=f"all {len(devices)} GPUs")
        least_mib = wanted.memory_gb * _MIB_PER_GIB * host.threshold(GPU_MEMORY_PERCENT_LIMIT) / 100
        small = (
            _memory(host, gpu, wanted.memory_gb)
            for gpu in devices
            if gpu.memory_total_mib is None or gpu.memory_total_mib < least_mib
        )
        yield from host.all_of(GPU_MEMORY, small, expected=f"{wanted.memory_gb} GB each", actual="as expected")
    names = Counter(gpu.name or "?" for gpu in devices)
    if "?" in names:
        remedy = "run `nvidia-smi -L` there"
        actual = f"{names['?']} GPUs do not tell"
        yield host.finding(GPU_MIXED, Status.UNKNOWN, actual=actual, remedy=remedy)
        return
    actual = ", ".join(f"{many} x {name}" for name, many in names.most_common())
    yield host.finding(GPU_MIXED, failed_unless(len(names) == 1), actual=actual)


def _model(host: Subject, gpu: Gpu, expected: str) -> Finding:
    status = Status.UNKNOWN if gpu.name is None else Status.FAILED
    actual = gpu.name or gpu.unavailable.get("name", "no name")
    return host.finding(GPU_MODEL, status, name_of(gpu), expected=expected, actual=actual, evidence=identity(gpu))


def _memory(host: Subject, gpu: Gpu, wanted_gb: int) -> Finding:
    total = gpu.memory_total_mib
    said = gpu.unavailable.get("memory_total_mib", "not told") if total is None else f"{total} MiB"
    return host.finding(
        GPU_MEMORY,
        Status.UNKNOWN if total is None else Status.FAILED,
        name_of(gpu),
        expected=f"{wanted_gb} GB",
        actual=said,
        action="replace",
        evidence=identity(gpu),
    )


GPU_IDENTITY = Check(
    "gpu_identity",
    looks_at="nvidia-smi -q",
    fires="a UUID or serial number twice",
    expected="each once",
    remedy="compare with the cards' labels; have the vendor mend what is stored in them",
)


@judges(GPU_IDENTITY, reads=("gpus",))
def once(host: Subject) -> Iterator[Finding]:
    """No UUID or serial number twice: one that is was flashed wrongly, or a text was copied."""
    devices = gpus_of(host)
    if len(devices) < 2:
        return
    pairs = (("UUID", [gpu.uuid for gpu in devices]), ("serial", [gpu.serial for gpu in devices]))
    # a serial is the board's: two GPUs of one board share it, and share the board's id
    boards = len({gpu.board_id for gpu in devices if gpu.board_id}) or len(devices)
    twice = [
        f"{name} {value}"
        for name, values in pairs
        for value, many in Counter(value for value in values if value).items()
        if many > 1 and (name == "UUID" or boards == len(devices))
    ]
    silent = [gpu.label for gpu in devices if gpu.uuid is None]
    if silent and not twice:
        actual, remedy = f"no UUID of {', '.join(silent)}", "run `nvidia-smi -L` there"
        yield host.finding(GPU_IDENTITY, Status.UNKNOWN, actual=actual, remedy=remedy)
        return
    actual = ", ".join(twice) or "each once"
    yield host.finding(GPU_IDENTITY, failed_unless(not twice), actual=actual)


GPU_VBIOS = Check("gpu_vbios", looks_at="nvidia-smi -q", fires="warning: GPUs of one model with different VBIOS")
GPU_INFOROM = Check(
    "gpu_inforom",
    looks_at="nvidia-smi -q",
    fires="warning: the driver calls an InfoROM corrupted",
    expected="no warning",
    remedy="reboot; comes it back, have the GPU replaced: its InfoROM keeps serial, ECC and retirement records",
    action="replace",
)


@judges(GPU_VBIOS, GPU_INFOROM, reads=("gpus",))
def alike(host: Subject) -> Iterator[Finding]:
    """One VBIOS and one power limit among GPUs of one model; the driver's warnings about their InfoROM."""
    devices = gpus_of(host)
    if not devices:
        return
    remedy = "have the vendor's firmware package installed on the whole node, then reboot"
    yield from _same(host, GPU_VBIOS, "one VBIOS", lambda gpu: gpu.vbios_version, "vbios_version", remedy)
    found = host.fact("gpus", Gpus)
    said = [text for text in found.warnings if "inforom" in text.lower()] if found else []
    unread = [gpu.label for gpu in devices if is_failure(gpu.unavailable.get("inforom_version", ""))]
    if unread and not said:
        actual = f"not readable on {', '.join(unread)}"
        yield host.finding(GPU_INFOROM, Status.UNKNOWN, actual=actual)
        return
    actual = said[0] if said else "no warning of the driver"
    yield host.finding(GPU_INFOROM, warning_unless(not said), actual=actual)


def _same(
    host: Subject, check: Check, expected: str, value: Callable[[Gpu], str | None], field: str, remedy: str
) -> Iterator[Finding]:
    devices = gpus_of(host)
    shown = {gpu.unavailable.get(field, "not told") for gpu in devices if value(gpu) is None}
    kinds = {(gpu.name, value(gpu)) for gpu in devices if value(gpu) is not None}
    models = {name for name, _ in kinds}
    if not kinds:
        yield host.finding(check, Status.UNKNOWN, expected=expected, actual=", ".join(sorted(shown)), remedy=remedy)
        return
    many = Counter(str(value(gpu)) for gpu in devices if value(gpu) is not None)
    actual = ", ".join(f"{text} ({number})" if len(many) > 1 else text for text, number in many.most_common())
    yield host.finding(
        check, warning_unless(len(kinds) == len(models)), expected=expected, actual=actual, remedy=remedy
    )
