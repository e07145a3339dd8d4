"""Each GPU's link to its host: lanes, speed, and packets that had to be sent again."""

from __future__ import annotations

from nodectl.checks.check import Subject, Threshold
from nodectl.checks.gpu.rules import Fault, gpu_check, gpus_of
from nodectl.facts.gpus import Gpu
from nodectl.model.status import Status

ORDER = 80

_SLOT = "reseat the GPU, then its riser or the board; `lspci -vvv -s BUS` shows LnkCap and LnkSta"


@gpu_check(
    "gpu_pcie_width",
    "pcie_width_current",
    fires="fewer lanes than it has",
    expected="all lanes",
    remedy=_SLOT,
    action="replace",
)
def width(host: Subject, gpu: Gpu) -> Fault | None:
    now, top = gpu.pcie_width_current or 0, gpu.pcie_width_max
    return None if top is None or now >= top else Fault(Status.FAILED, f"x{now} of x{top}")


GPU_IDLE_PERCENT_LIMIT = Threshold("gpu_idle_percent", 5, "utilisation up to which a GPU has nothing to do")


@gpu_check(
    "gpu_pcie_gen",
    "pcie_gen_current",
    fires="slower than it can while at work, or than its siblings at best; warning: the slot is older than the GPU",
    expected="the best generation at work",
    remedy=_SLOT,
    action="replace",
    thresholds=(GPU_IDLE_PERCENT_LIMIT,),
)
def generation(host: Subject, gpu: Gpu) -> Fault | None:
    """An idle GPU lowers its link by itself: only one at work must have it up. Its best is judged at any time."""
    now, top = gpu.pcie_gen_current or 0, gpu.pcie_gen_max
    device, board = gpu.pcie_gen_device_max, gpu.pcie_gen_host_max
    busy = (gpu.utilization_gpu_percent or 0) > host.threshold(GPU_IDLE_PERCENT_LIMIT)
    if top is not None and busy and now < top:
        return Fault(Status.FAILED, f"generation {now} of {top} while at work")
    best = max((other.pcie_gen_max or 0 for other in gpus_of(host) if other.name == gpu.name), default=0)
    if top is not None and top < best:
        return Fault(Status.FAILED, f"at most generation {top}, its siblings {best}")
    if device is not None and board is not None and board < device and top is not None and top < device:
        return Fault(Status.WARNING, f"at most generation {top}: the slot has {board}, the GPU {device}")
    return None


GPU_PCIE_REPLAYS_FIRST_LIMIT = Threshold(
    "gpu_pcie_replays_first", 10_000, "without an earlier reading only a clear number counts"
)

GPU_PCIE_REPLAYS_LIMIT = Threshold("gpu_pcie_replays", 100, "a link that changes its speed replays a few packets")


@gpu_check(
    "gpu_pcie_replays",
    "pcie_replay_counter",
    fires="warning: packets sent again since the last reading",
    expected="few packets sent again",
    remedy=_SLOT,
    thresholds=(GPU_PCIE_REPLAYS_FIRST_LIMIT, GPU_PCIE_REPLAYS_LIMIT),
)
def replays(host: Subject, gpu: Gpu) -> Fault | None:
    grown = host.growth(f"gpu.{gpu.uuid}.pcie_replays", gpu.pcie_replay_counter or 0)
    if grown.by is None:
        limit, change = host.threshold(GPU_PCIE_REPLAYS_FIRST_LIMIT), grown.value
    else:
        limit, change = host.threshold(GPU_PCIE_REPLAYS_LIMIT), grown.by
    return Fault(Status.WARNING, grown.text) if change > limit else None
