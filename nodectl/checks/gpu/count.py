"""Checks which GPUs are there: number, model, memory, firmware, no UUID or serial twice, and the driver's warnings."""

from __future__ import annotations

import re
from collections.abc import Iterator

from nodectl.checks.check import Check, Subject, Threshold, failed_unless, judges, warning_unless
from nodectl.checks.gpu.rules import REPORT, gpus_of, is_failure, of_gpu
from nodectl.common.counting import counted
from nodectl.facts.board import Pcie
from nodectl.facts.gpus import Gpu, Gpus
from nodectl.facts.parsers.linux.lspci_acs import PcieLink
from nodectl.facts.parsers.text import bus_id
from nodectl.model.finding import Finding
from nodectl.model.status import Status
from nodectl.profiles.gpus import WORKS_BESIDE, apart, is_same, short_form

ORDER = 40

_MIB_PER_GIB = 1024


GPUS = Check(
    "gpus",
    fires="not as many as the hardware profile names, or one is lost; warning: some, and it names none, or none at all",
    remedy="run `nvidia-smi -L` there; `dmesg` there says why one is gone",
)


@judges(GPUS, reads=("gpus", "pcie"))
def count(host: Subject) -> Iterator[Finding]:
    """Compare the number of GPUs with the hardware profile's; warn if it names none and the host has some."""
    wanted, gpus = host.gpus, host.facts.get("gpus")
    if wanted == 0 and isinstance(gpus, Gpus) and gpus.count:
        remedy = "name the hardware profile that fits (nodectl_hardware): `nodectl init --from` proposes it"
        yield host.finding(GPUS, Status.WARNING, expected="no GPU", actual=str(gpus.count), remedy=remedy)
    if wanted is None and isinstance(gpus, Gpus):
        missing = list(_not_taken(host, gpus))
        yield from missing
        if not (missing or gpus.count or gpus.lost or _others(host)):
            yield host.finding(GPUS, Status.WARNING, actual="nvidia-smi finds no device")
    if wanted is None and (others := _others(host)) and not (isinstance(gpus, Gpus) and gpus.count):
        yield host.finding(GPUS, Status.SKIPPED, actual=f"no NVIDIA GPU, {others}: {WORKS_BESIDE}")
    if not wanted:
        return
    yield from host.unread(GPUS, gpus, counted(wanted, "GPU"), promised=True, remedy=GPUS.remedy)
    if isinstance(gpus, Gpus):
        yield _counted(host, gpus, wanted)


def _counted(host: Subject, gpus: Gpus, wanted: int) -> Finding:
    """Return the finding on the number of GPUs: unknown if nvidia-smi shows too few and another source shows more."""
    groups = host.wanted.hardware.groups if host.wanted else ()
    expected = " + ".join(f"{group.gpus} x {group.model}" for group in groups) or counted(wanted, "GPU")
    lost = f"; lost: {', '.join(map(_named, gpus.lost))}" if gpus.lost else ""
    actual = f"{gpus.count}{lost}" if gpus.count or not lost else f"not told, because nvidia-smi stops at one{lost}"
    on_bus = len(_links(host))
    doubt = gpus.disputed or (f"PCI has {on_bus}" if not gpus.confirmed and on_bus > gpus.count else "")
    if gpus.count < wanted and not gpus.lost and doubt:
        remedy = "run `nvidia-smi -q` there once more: a report that is cut condemns no machine"
        return host.finding(GPUS, Status.UNKNOWN, expected=expected, actual=f"{actual}; but {doubt}", remedy=remedy)
    names = [gpu.name for gpu in gpus.devices]
    lacks = {group.model: group.gpus - sum(is_same(name or "", group.model) for name in names) for group in groups}
    missing = [] if None in names else [f"{lack} x {model}" for model, lack in lacks.items() if lack > 0]
    actual += f"; missing: {', '.join(missing)}" if missing and (gpus.count or not gpus.lost) else ""
    if gpus.count + len(gpus.lost) < min(wanted, on_bus):
        left = ", ".join(link.address for link in _untaken(host, gpus))
        actual += f"; PCI has {on_bus}: the driver has not taken {left or 'all of them'}"
    # where all should be alike, another model is the check gpu_model's
    status = failed_unless(gpus.count == wanted and not gpus.lost and not (missing and len(groups) > 1))
    action = "reboot" if gpus.count < wanted else "none"
    remedy = GPUS.remedy
    if gpus.count > wanted and not (gpus.lost or missing):
        form = short_form([gpu.name or "" for gpu in gpus.devices]) or "auto"
        remedy = f"none is gone, the hardware profile counts fewer: set nodectl_hardware to what is there, {form}"
    return host.finding(GPUS, status, expected=expected, actual=actual, action=action, remedy=remedy)


def _not_taken(host: Subject, gpus: Gpus) -> Iterator[Finding]:
    """Yield, without a profile, the finding of GPUs that no driver has taken; of another model it is only a warning."""
    missing = _untaken(host, gpus)
    kinds = {_kind(link) for link in _links(host) if link not in missing}
    # nvidia-smi may name a lost one without its address
    if len(missing) <= sum(bus_id(place) is None for place in gpus.lost) or gpus.disputed:
        return
    is_sibling = not gpus.devices or any(_kind(link) in kinds for link in missing)
    status, action = (Status.FAILED, "reboot") if is_sibling else (Status.WARNING, "none")
    expected = f"{counted(len(_links(host)), 'GPU')}, as PCI has"
    actual = f"{gpus.count}; the driver has not taken {', '.join(link.address for link in missing)}"
    remedy = f"{GPUS.remedy}; if it belongs to a virtual machine, name a hardware profile (nodectl_hardware)"
    yield host.finding(GPUS, status, expected=expected, actual=actual, remedy=remedy, action=action)


def _untaken(host: Subject, gpus: Gpus) -> list[PcieLink]:
    shown = {(gpu.bus_id or "").lower() for gpu in gpus.devices} | {address.lower() for address in gpus.lost}
    return [link for link in _links(host) if link.address not in shown] if "" not in shown else []


def _kind(link: PcieLink) -> str:
    return link.name.partition(" (rev ")[0]


def _links(host: Subject) -> list[PcieLink]:
    pcie = host.fact("pcie", Pcie)
    return pcie.gpus_of("NVIDIA") if pcie else []


def _others(host: Subject) -> str:
    pcie = host.fact("pcie", Pcie)
    return pcie.other_gpus if pcie else ""


GPU_REPORT = Check("gpu_report", fires="unknown: not read, or cut", expected="nvidia-smi -q")
GPU_LOST = Check(
    "gpu_lost",
    fires="the driver names a GPU that it cannot reach",
    expected="all reachable",
    remedy="drain and reboot the node; if it comes back lost, check its power cables and have it replaced",
    action="reboot",
)


@judges(GPU_REPORT, GPU_LOST, reads=("gpus",))
def report(host: Subject) -> Iterator[Finding]:
    """Require nvidia-smi's full report, which all checks below need; fail for a GPU that the driver cannot reach."""
    gpus = host.facts.get("gpus")
    if host.gpus is None:
        # with GPUs in the profile the check gpus says it already
        yield from host.unknown(gpus, "nvidia-smi's report", GPU_REPORT, GPU_LOST)
    if host.gpus == 0 or not isinstance(gpus, Gpus):
        return
    if gpus.source != REPORT and gpus.count:
        why = gpus.unread or gpus.disputed
        actual = f"only {gpus.source} was read{why and f': {why}'}"
        remedy = "run `nvidia-smi -q` there: without it, memory, clocks, power and links of the GPUs are not known"
        yield host.finding(GPU_REPORT, Status.UNKNOWN, actual=actual, remedy=remedy)
    elif gpus.disputed:
        remedy = "run `nvidia-smi -q` there once more"
        actual = f"its report has {counted(gpus.count, 'whole part')}; but {gpus.disputed}"
        yield host.finding(GPU_REPORT, Status.UNKNOWN, expected="one number", actual=actual, remedy=remedy)
    elif gpus.count:
        yield host.finding(GPU_REPORT, Status.OK, actual=counted(gpus.count, "GPU"))
    lost = (_lost(host, place) for place in gpus.lost)
    yield from host.all_of(GPU_LOST, lost, actual=f"{gpus.count} reachable")


def _named(place: str) -> str:
    index = re.search(r"for (?:the )?GPU ?(\d+):", place, re.IGNORECASE)
    return f"GPU {index[1]}" if index and not bus_id(place) else place


def _lost(host: Subject, place: str) -> Finding:
    subject = f"GPU {place}" if bus_id(place) else _named(place) if _named(place) != place else ""
    actual = "the driver names it and cannot reach it"
    return host.finding(GPU_LOST, Status.FAILED, subject, expected="reachable", actual=actual, evidence=place)


GPU_MEMORY_PERCENT_LIMIT = Threshold(
    "gpu_memory_percent", 92, "with ECC in the memory itself (L40S, A10) a sixteenth is not for use"
)
GPU_MODEL = Check(
    "gpu_model",
    fires="another model than the hardware profile's",
    remedy="look for an exchanged card; if all such nodes are so, name their hardware profile (nodectl_hardware)",
)
GPU_MEMORY = Check(
    "gpu_memory",
    fires="less memory than the profile's",
    remedy="reset the GPU; stays it small, a part of its memory has failed: have it replaced",
    thresholds=(GPU_MEMORY_PERCENT_LIMIT,),
)


@judges(GPU_MODEL, GPU_MEMORY, reads=("gpus",))
def kind(host: Subject) -> Iterator[Finding]:
    """Compare the GPUs' model and memory with the profile's."""
    devices, groups = gpus_of(host), host.wanted.hardware.groups if host.wanted else ()
    if host.gpus is None:
        gpus = host.fact("gpus", Gpus)
        names = dict.fromkeys(gpu.name or "" for gpu in (gpus.devices if gpus else ()))
        notes = ((name, apart(name)) for name in names)
        yield from (host.finding(GPU_MODEL, Status.SKIPPED, name, actual=why) for name, why in notes if why)
    if not devices or not groups:
        return
    found = [next((group for group in groups if is_same(gpu.name or "", group.model)), None) for gpu in devices]
    models = " or ".join(group.model for group in groups)
    others = (_model(host, gpu, models) for gpu, group in zip(devices, found, strict=True) if group is None)
    yield from host.all_of(GPU_MODEL, others, expected=models, actual=f"all {len(devices)} GPUs")
    # another model than the only one is held to the same memory
    sizes = [group.memory_gb for group in (group or groups[0] for group in found)]
    if any(sizes):
        small = (
            _memory(host, gpu, size) for gpu, size in zip(devices, sizes, strict=True) if _is_small(host, gpu, size)
        )
        expected = " or ".join(f"{size} GB" for size in dict.fromkeys(filter(None, sizes)))
        yield from host.all_of(GPU_MEMORY, small, expected=f"{expected} each", actual="as expected")


def _is_small(host: Subject, gpu: Gpu, wanted_gb: int | None) -> bool:
    least_mib = (wanted_gb or 0) * _MIB_PER_GIB * host.threshold(GPU_MEMORY_PERCENT_LIMIT) / 100
    return wanted_gb is not None and (gpu.memory_total_mib is None or gpu.memory_total_mib < least_mib)


def _model(host: Subject, gpu: Gpu, expected: str) -> Finding:
    status = Status.UNKNOWN if gpu.name is None else Status.FAILED
    actual = gpu.name or gpu.unavailable.get("name", "no name")
    return of_gpu(host, GPU_MODEL, gpu, status, actual, expected=expected)


def _memory(host: Subject, gpu: Gpu, wanted_gb: int | None) -> Finding:
    status, actual = Status.FAILED, f"{gpu.memory_total_mib} MiB"
    if gpu.memory_total_mib is None:
        status, actual = Status.UNKNOWN, gpu.unavailable.get("memory_total_mib", "not told")
    return of_gpu(host, GPU_MEMORY, gpu, status, actual, expected=f"{wanted_gb} GB", action="reset GPU")


GPU_INFOROM = Check(
    "gpu_inforom",
    fires="warning: the driver calls an InfoROM corrupted",
    expected="no warning",
    remedy="reboot; if it comes back, have the GPU replaced: its InfoROM keeps serial, ECC and retirement records",
    action="replace",
)


@judges(GPU_INFOROM, reads=("gpus",))
def inforom(host: Subject) -> Iterator[Finding]:
    """Yield the driver's warnings about the InfoROM of GPUs."""
    gpus, devices = host.fact("gpus", Gpus), gpus_of(host)
    if gpus is None or not devices:
        return
    warnings = [text for text in gpus.warnings if "inforom" in text.lower()]
    unread = [gpu.label for gpu in devices if is_failure(gpu.unavailable.get("inforom_version", ""))]
    status, actual = warning_unless(not warnings), [*warnings, "no warning of the driver"][0]
    if unread and not warnings:
        status, actual = Status.UNKNOWN, f"not readable on {', '.join(unread)}"
    yield host.finding(GPU_INFOROM, status, actual=actual)
