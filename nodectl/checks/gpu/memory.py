"""What the driver says that a GPU needs, and whether its memory is sound: ECC, retired pages, remapped rows, repairs.

Limits are NVIDIA's where it names one (A100 memory error management, RMA policy), else those of operators.
"""

from __future__ import annotations

import re

from nodectl.checks.check import Subject, Threshold
from nodectl.checks.gpu.rules import Fault, by_tuning, gpu_check, gpu_flag, gpus_of
from nodectl.common.counting import counted
from nodectl.facts.gpus import Gpu
from nodectl.model.status import Status

ORDER = 50

_RESET_IDLE = "`nvidia-smi -r -i N` when nothing runs on it"
# what the driver's own recovery action asks for, from the mildest on
_RECOVERY = {
    "reset": ("reset GPU", _RESET_IDLE),
    "gpu reset": ("reset GPU", _RESET_IDLE),
    "reboot": ("reboot", "reboot the node"),
    "node reboot": ("reboot", "reboot the node"),
    "drain p2p": ("drain", "let peer traffic of this GPU end, then reset it"),
    "drain and reset": ("drain", "drain the node, then reset the GPU"),
}


@gpu_check(
    "gpu_recovery",
    "recovery_action",
    fires="the driver asks for a reset, a drain or a reboot",
    expected="None",
    remedy=_RESET_IDLE,
)
def recovery(host: Subject, gpu: Gpu) -> Fault | None:
    """Fire where the driver itself asks for a reset, a drain or a reboot."""
    asked = (gpu.recovery_action or "").strip()
    if asked.lower() in ("none", "n/a"):
        return None
    action, remedy = _RECOVERY.get(asked.lower(), ("drain", "see NVIDIA's documentation of GPU recovery actions"))
    return Fault(Status.FAILED, asked, action, remedy)


_RESET = "stop what runs on it, then `nvidia-smi -r -i N`, or reboot; on NVSwitch machines reset all GPUs together"
_REPLACE = "drain the node, run NVIDIA's field diagnosis, and have the GPU replaced"
_DRAIN = f"drain the node, then {_RESET_IDLE}"
_DESKTOP = re.compile(r"GeForce|Quadro|RTX|TITAN", re.IGNORECASE)


@gpu_check(
    "gpu_ecc_mode",
    "ecc_mode_current",
    fires="off; on a desktop's card, a warning where its siblings have it on",
    expected="ECC as it should be",
    remedy="`nvidia-smi -e 1`, then reboot",
    action="reboot",
    roles=("gpu_settings",),
)
def ecc_off(host: Subject, gpu: Gpu) -> Fault | None:
    """Fire for a GPU with ECC off; desktop cards are delivered so, and only fire if ECC differs between them."""
    if gpu.ecc_mode_pending not in (None, gpu.ecc_mode_current):
        return Fault(Status.SKIPPED, "changes with the next reset: gpu_ecc_pending says so")
    if judged := by_tuning(host, gpu, "ecc", gpu.ecc_mode_current):
        return judged[0]
    if gpu.ecc_mode_current:
        return None
    if not _DESKTOP.search(gpu.name or ""):
        return Fault(Status.FAILED, "off")
    mixed = any(other.ecc_mode_current for other in gpus_of(host) if other.name == gpu.name)
    return Fault(Status.WARNING, "off, and on for its siblings") if mixed else None


@gpu_check(
    "gpu_ecc_pending",
    "ecc_mode_pending",
    fires="a change of the ECC mode waits for a reset",
    expected="no change of ECC mode pending",
    remedy=_RESET,
    action="reset GPU",
)
def ecc_pending(host: Subject, gpu: Gpu) -> Fault | None:
    """Fire where a change of the ECC mode waits for a reset."""
    if gpu.ecc_mode_current is None or gpu.ecc_mode_pending == gpu.ecc_mode_current:
        return None
    now, then = ("on", "off") if gpu.ecc_mode_current else ("off", "on")
    return Fault(Status.FAILED, f"{now} now, {then} after the next reset")


@gpu_check(
    "gpu_ecc_uncorrectable",
    "ecc_volatile_uncorrectable",
    fires="an error since the driver was loaded that ECC could not correct",
    expected="no uncorrectable error",
    remedy=f"drain the node; {_RESET}; if it comes back, have the GPU replaced",
    action="reset GPU",
)
def uncorrectable(host: Subject, gpu: Gpu) -> Fault | None:
    """Fire for an error since the driver was loaded that ECC could not correct."""
    count = gpu.ecc_volatile_uncorrectable
    return Fault(Status.FAILED, f"{count} since the driver was loaded") if count else None


GPU_SRAM_UNCORRECTABLE_LIMIT = Threshold(
    "gpu_sram_uncorrectable", 4, "ml-engineering: above this NVIDIA replaces it; Azure fails at the first"
)


@gpu_check(
    "gpu_sram_uncorrectable",
    "ecc_aggregate_sram_uncorrectable",
    fires="warning: an uncorrectable error of on-chip memory in its life; failed: more than the threshold",
    expected="no uncorrectable error of SRAM",
    remedy="watch it: Azure takes such a GPU out, others after four",
    thresholds=(GPU_SRAM_UNCORRECTABLE_LIMIT,),
)
def _sram_uncorrectable(host: Subject, gpu: Gpu) -> Fault | None:
    count = gpu.ecc_aggregate_sram_uncorrectable or 0
    if count > host.threshold(GPU_SRAM_UNCORRECTABLE_LIMIT):
        return Fault(Status.FAILED, f"{count} in its life", "replace", _REPLACE)
    return Fault(Status.WARNING, f"{count} in its life") if count else None


GPU_RETIRED_PAGES_LIMIT = Threshold("gpu_retired_pages", 62, "Azure; NVIDIA's limit is 64 pages")


@gpu_check(
    "gpu_retired_pages",
    "retired_pages_double_bit",
    fires="as many pages retired as a GPU can",
    expected="pages left to retire",
    remedy=_REPLACE,
    action="replace",
    thresholds=(GPU_RETIRED_PAGES_LIMIT,),
)
def _retired(host: Subject, gpu: Gpu) -> Fault | None:
    count = (gpu.retired_pages_single_bit or 0) + (gpu.retired_pages_double_bit or 0)
    return Fault(Status.FAILED, f"{count} pages") if count >= host.threshold(GPU_RETIRED_PAGES_LIMIT) else None


GPU_REMAPPED_ROWS_LIMIT = Threshold("gpu_remapped_rows", 512, "NVIDIA's RMA policy: rows for uncorrectable errors")


@gpu_check(
    "gpu_remapped_rows",
    "remapped_uncorrectable",
    fires="more rows remapped for uncorrectable errors than NVIDIA allows",
    expected="rows left to remap",
    remedy=_REPLACE,
    action="replace",
    thresholds=(GPU_REMAPPED_ROWS_LIMIT,),
)
def _remapped(host: Subject, gpu: Gpu) -> Fault | None:
    count = gpu.remapped_uncorrectable or 0
    many = count > host.threshold(GPU_REMAPPED_ROWS_LIMIT)
    return Fault(Status.FAILED, f"{counted(count, 'row')} for uncorrectable errors") if many else None


@gpu_check(
    "gpu_remap_banks",
    "remap_banks_max",
    fires="a bank without a spare row; warning: with few",
    expected="spare rows in every bank",
    remedy=_REPLACE,
    action="replace",
)
def _banks(host: Subject, gpu: Gpu) -> Fault | None:
    if gpu.remap_banks_none:
        return Fault(Status.FAILED, f"{gpu.remap_banks_none} banks without a spare row")
    if not gpu.remap_banks_low:
        return None
    reason = f"{counted(gpu.remap_banks_low, 'bank')} with few spare rows"
    # none is used up yet: nothing is to be done today
    return Fault(Status.WARNING, reason, "none", "watch it: a bank without a spare row asks for another card")


FLAGS = (
    gpu_flag("gpu_reset_required", "reset_required", "a reset is required", _RESET_IDLE, "reset GPU"),
    gpu_flag("gpu_drain", "drain_and_reset_recommended", "drain and reset are recommended", _DRAIN, "drain"),
    gpu_flag("gpu_sram_threshold", "ecc_sram_threshold_exceeded", "on-chip memory is worn out", _REPLACE, "replace"),
    gpu_flag("gpu_retired_pending", "retired_pages_pending", "a page waits for a reset", _RESET, "reset GPU"),
    gpu_flag("gpu_remap_pending", "remap_pending", "a row waits for a reset", _RESET, "reset GPU"),
    gpu_flag("gpu_remap_failure", "remap_failure", "a row could not be remapped", _REPLACE, "replace"),
    gpu_flag(
        "gpu_channel_repair", "channel_repair_pending", "a channel's repair waits for a reset", _RESET, "reset GPU"
    ),
    gpu_flag("gpu_tpc_repair", "tpc_repair_pending", "a unit's repair waits for a reset", _RESET, "reset GPU"),
    gpu_flag("gpu_unrepairable", "unrepairable_memory", "memory that cannot be repaired", _REPLACE, "replace"),
)
