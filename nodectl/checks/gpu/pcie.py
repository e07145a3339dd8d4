"""Each GPU's link to its host: lanes, speed, and packets that had to be sent again."""

from __future__ import annotations

from collections.abc import Iterator

from nodectl.checks.base import Check, Subject
from nodectl.checks.gpu.rules import Fault, Rule, gpus_of, judged
from nodectl.model.finding import Finding
from nodectl.model.gpus import Gpu
from nodectl.model.status import Status

_SLOT = "reseat the GPU, then its riser or the board; `lspci -vvv -s BUS` shows LnkCap and LnkSta"


def _width(host: Subject, gpu: Gpu) -> Fault | None:
    now, top = gpu.pcie_width_current or 0, gpu.pcie_width_max
    return None if top is None or now >= top else Fault(Status.FAILED, f"x{now} of x{top}")


def _generation(host: Subject, gpu: Gpu) -> Fault | None:
    """An idle GPU lowers its link by itself: only one at work must have it up. Its best is judged at any time."""
    now, top = gpu.pcie_gen_current or 0, gpu.pcie_gen_max
    device, board = gpu.pcie_gen_device_max, gpu.pcie_gen_host_max
    busy = (gpu.utilization_gpu_percent or 0) > host.threshold("gpu_idle_percent")
    if top is not None and busy and now < top:
        return Fault(Status.FAILED, f"generation {now} of {top} while at work")
    best = max((other.pcie_gen_max or 0 for other in gpus_of(host) if other.name == gpu.name), default=0)
    if top is not None and top < best:
        return Fault(Status.FAILED, f"at most generation {top}, its siblings {best}")
    if device is not None and board is not None and board < device and top is not None and top < device:
        return Fault(Status.WARNING, f"at most generation {top}: the slot has {board}, the GPU {device}")
    return None


def _replays(host: Subject, gpu: Gpu) -> Fault | None:
    grown = host.growth(f"gpu.{gpu.uuid}.pcie_replays", gpu.pcie_replay_counter or 0)
    if grown.by is None:
        limit, change = host.threshold("gpu_pcie_replays_first"), grown.value
    else:
        limit, change = host.threshold("gpu_pcie_replays"), grown.by
    return Fault(Status.WARNING, grown.told) if change > limit else None


_Q = "nvidia-smi -q"
RULES = (
    Rule(
        "gpu_pcie_width", "pcie_width_current", _Q, "fewer lanes than it has", "all lanes", _SLOT, _width, "replace",
    ),
    Rule(
        "gpu_pcie_gen", "pcie_gen_current", _Q,
        "slower than it can while at work, or than its siblings at best; warning: the slot is older than the GPU",
        "the best generation at work", _SLOT, _generation, "replace",
    ),
    Rule(
        "gpu_pcie_replays", "pcie_replay_counter", _Q, "warning: packets sent again since the last reading",
        "few packets sent again", _SLOT, _replays,
    ),
)  # fmt: skip


def links(host: Subject) -> Iterator[Finding]:
    """Judged by what the driver says; lspci's word is root's only."""
    yield from judged(host, RULES)


CHECKS: tuple[Check, ...] = (links,)
ABOUT = tuple(rule.about for rule in RULES)
