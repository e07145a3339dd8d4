"""Whether the GPUs' memory is sound: ECC, retired pages, remapped rows, and repairs that wait for a reset.

Limits are NVIDIA's where it names one (A100 memory error management, RMA policy), else those of operators: see
thresholds.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from nodectl.checks.base import Check, Subject
from nodectl.checks.gpu.rules import Fault, Rule, flag, gpus_of, judged
from nodectl.model.finding import Finding
from nodectl.model.gpus import Gpu
from nodectl.model.status import Status

_RESET = "stop what runs on it, then `nvidia-smi -r -i N`, or reboot; on NVSwitch machines reset all GPUs together"
_REPLACE = "drain the node, run NVIDIA's field diagnosis, and have the GPU replaced"
_DESKTOP = re.compile(r"GeForce|Quadro|RTX|TITAN", re.IGNORECASE)
_COUNTS = "let it run its job, then reset the GPU; many in one place become remapped rows"


def _ecc_off(host: Subject, gpu: Gpu) -> Fault | None:
    """Cards for desktops come with it off, and lose memory to it: there only a difference counts."""
    if gpu.ecc_mode_current:
        return None
    if not _DESKTOP.search(gpu.name or ""):
        return Fault(Status.FAILED, "off")
    mixed = any(other.ecc_mode_current for other in gpus_of(host) if other.name == gpu.name)
    return Fault(Status.WARNING, "off, and on for its siblings") if mixed else None


def _ecc_pending(host: Subject, gpu: Gpu) -> Fault | None:
    if gpu.ecc_mode_current is None or gpu.ecc_mode_pending == gpu.ecc_mode_current:
        return None
    words = {True: "on", False: "off"}
    now, then = words[gpu.ecc_mode_current], words[bool(gpu.ecc_mode_pending)]
    return Fault(Status.FAILED, f"{now} now, {then} after the next reset")


def _uncorrectable(host: Subject, gpu: Gpu) -> Fault | None:
    count = gpu.ecc_volatile_uncorrectable
    return Fault(Status.FAILED, f"{count} since the driver was loaded") if count else None


def _corrected(host: Subject, gpu: Gpu) -> Fault | None:
    value = gpu.ecc_volatile_correctable or 0
    grown = host.growth(f"gpu.{gpu.uuid}.ecc_corrected", value)
    change = value if grown.by is None else grown.by
    return Fault(Status.WARNING, grown.told) if change > host.threshold("gpu_ecc_corrected") else None


def _sram_corrected(host: Subject, gpu: Gpu) -> Fault | None:
    count = gpu.ecc_aggregate_sram_correctable or 0
    return Fault(Status.WARNING, f"{count} in its life") if count > host.threshold("gpu_sram_corrected") else None


def _sram_uncorrectable(host: Subject, gpu: Gpu) -> Fault | None:
    count = gpu.ecc_aggregate_sram_uncorrectable or 0
    if count > host.threshold("gpu_sram_uncorrectable"):
        return Fault(Status.FAILED, f"{count} in its life", "replace", _REPLACE)
    return Fault(Status.WARNING, f"{count} in its life") if count else None


def _retired(host: Subject, gpu: Gpu) -> Fault | None:
    count = (gpu.retired_pages_single_bit or 0) + (gpu.retired_pages_double_bit or 0)
    if count >= host.threshold("gpu_retired_pages"):
        return Fault(Status.FAILED, f"{count} pages", "replace", _REPLACE)
    return None


def _remapped(host: Subject, gpu: Gpu) -> Fault | None:
    count = gpu.remapped_uncorrectable or 0
    if count > host.threshold("gpu_remapped_rows"):
        return Fault(Status.FAILED, f"{count} rows for uncorrectable errors")
    return None


def _banks(host: Subject, gpu: Gpu) -> Fault | None:
    if gpu.remap_banks_none:
        return Fault(Status.FAILED, f"{gpu.remap_banks_none} banks without a spare row")
    return Fault(Status.WARNING, f"{gpu.remap_banks_low} banks with few spare rows") if gpu.remap_banks_low else None


RULES = (
    Rule(
        "gpu_ecc_mode", "ecc_mode_current", "nvidia-smi -q",
        "off; on a desktop's card, a warning where its siblings have it on", "ECC as it should be",
        "`nvidia-smi -e 1`, then reboot", _ecc_off, "reboot",
    ),
    Rule(
        "gpu_ecc_pending", "ecc_mode_pending", "nvidia-smi -q", "a change of the ECC mode waits for a reset",
        "no change of ECC mode pending", _RESET, _ecc_pending, "reset GPU",
    ),
    Rule(
        "gpu_ecc_uncorrectable", "ecc_volatile_uncorrectable", "nvidia-smi -q",
        "an error since the driver was loaded that ECC could not correct", "no uncorrectable error",
        f"drain the node; {_RESET}; comes it back, have the GPU replaced", _uncorrectable, "reset GPU",
    ),
    Rule(
        "gpu_ecc_corrected", "ecc_volatile_correctable", "nvidia-smi -q",
        "warning: very many corrected errors since the last reading", "few corrected errors", _COUNTS, _corrected,
    ),
    Rule(
        "gpu_sram_corrected", "ecc_aggregate_sram_correctable", "nvidia-smi -q",
        "warning: very many corrected errors of on-chip memory", "few corrected errors of SRAM", _COUNTS,
        _sram_corrected,
    ),
    Rule(
        "gpu_sram_uncorrectable", "ecc_aggregate_sram_uncorrectable", "nvidia-smi -q",
        "warning: an uncorrectable error of on-chip memory in its life; failed: more than the threshold",
        "no uncorrectable error of SRAM", "watch it: Azure takes such a GPU out, others after four",
        _sram_uncorrectable,
    ),
    flag(
        "gpu_sram_threshold", "ecc_sram_threshold_exceeded", "the GPU says that its on-chip memory is worn out",
        "threshold not exceeded", "exceeded", _REPLACE, "replace",
    ),
    flag(
        "gpu_retired_pending", "retired_pages_pending", "a page waits for a reset to be retired", "no page pending",
        "a page waits for a reset", _RESET, "reset GPU",
    ),
    Rule(
        "gpu_retired_pages", "retired_pages_double_bit", "nvidia-smi -q, of GPUs before Ampere",
        "as many pages retired as a GPU can", "pages left to retire", _REPLACE, _retired, "replace",
    ),
    flag(
        "gpu_remap_pending", "remap_pending", "a row waits for a reset to be remapped", "no row pending",
        "a row waits for a reset", _RESET, "reset GPU",
    ),
    flag(
        "gpu_remap_failure", "remap_failure", "a row could not be remapped: NVIDIA's sign for replacement",
        "no failed remapping", "a row could not be remapped", _REPLACE, "replace",
    ),
    Rule(
        "gpu_remapped_rows", "remapped_uncorrectable", "nvidia-smi -q",
        "more rows remapped for uncorrectable errors than NVIDIA allows", "rows left to remap", _REPLACE, _remapped,
        "replace",
    ),
    Rule(
        "gpu_remap_banks", "remap_banks_max", "nvidia-smi -q", "a bank without a spare row; warning: with few",
        "spare rows in every bank", _REPLACE, _banks, "replace",
    ),
    flag(
        "gpu_channel_repair", "channel_repair_pending", "a memory channel waits for a reset to be repaired",
        "no repair pending", "a repair of a memory channel waits for a reset", _RESET, "reset GPU",
    ),
    flag(
        "gpu_tpc_repair", "tpc_repair_pending", "a unit waits for a reset to be repaired", "no repair pending",
        "a repair of a processing unit waits for a reset", _RESET, "reset GPU",
    ),
    flag(
        "gpu_unrepairable", "unrepairable_memory", "memory that cannot be repaired", "no such memory",
        "memory that cannot be repaired", _REPLACE, "replace",
    ),
)  # fmt: skip


def memory(host: Subject) -> Iterator[Finding]:
    """Errors of the GPUs' memory, and what is left to mend them with."""
    yield from judged(host, RULES)


CHECKS: tuple[Check, ...] = (memory,)
ABOUT = tuple(rule.about for rule in RULES)
