"""GPUs, PCI and NUMA of this host without torch; clocks, temperature, power and throttle reasons over a time."""

import re
import threading
import time
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Optional, Sequence

from ...common import machine
from ...common.machine import smi, text

SYS = Path("/sys")
PROC = Path("/proc")
DEV = Path("/dev")
_NVIDIA = "0x10de"
# display and 3D controllers
_CLASSES = ("0x0300", "0x0302")
# GPUs of NVIDIA's that are no PCI devices of this kernel
_ELSEWHERE = ("dxg", "nvhost-gpu", "nvgpu")
_CARD_COLUMNS = (
    "index",
    "uuid",
    "pci.bus_id",
    "pcie.link.gen.max",
    "pcie.link.width.max",
    "clocks.max.sm",
    "power.limit",
)


class Card(NamedTuple):
    """A GPU as nvidia-smi has it; None for what it does not tell."""

    gpu: int
    uuid: str
    bus: str
    pcie_gen: Optional[int]
    pcie_width: Optional[int]
    clock_max_mhz: Optional[float]
    power_limit_w: Optional[float]


def gpu_count() -> Optional[int]:
    """NVIDIA's GPUs of this host, whether or not a program can use them; None if that cannot be told."""
    count = max(
        len(list((PROC / "driver/nvidia/gpus").glob("*"))),
        len(list(DEV.glob("nvidia[0-9]*"))),
        sum(
            text(device / "vendor") == _NVIDIA and text(device / "class").startswith(_CLASSES)
            for device in machine.PCI.glob("*")
        ),
        sum(line.startswith("GPU ") for line in (smi("-L") or "").splitlines()),
    )
    if count:
        return count
    # a kernel without PCI has no such folder; one whose devices are not shown has nothing below /sys/bus
    certain = any((SYS / "bus").glob("*")) and not any((DEV / name).exists() for name in _ELSEWHERE)
    return 0 if certain else None


def cards() -> List[Card]:
    """Return the cards by nvidia-smi's index, which is CUDA's where devices are in the order of the PCI bus."""
    rows = []
    for row in (smi("--query-gpu=" + ",".join(_CARD_COLUMNS), "--format=csv,noheader,nounits") or "").splitlines():
        cells = [cell.strip() for cell in row.split(",")]
        if len(cells) == len(_CARD_COLUMNS) and cells[0].isdigit():
            gen, width = (int(cell) if cell.isdigit() else None for cell in cells[3:5])
            clock, power = map(value_of, cells[5:])
            rows.append(Card(int(cells[0]), cells[1], cells[2], gen, width, clock, power))
    return rows


def value_of(cell: str) -> Optional[float]:
    """Return what nvidia-smi prints as a number; None for `[N/A]`, `[Not Supported]` and the like."""
    try:
        return float(cell)
    except ValueError:
        return None


def numa_of(bus: str) -> Optional[int]:
    """Return the NUMA node at which a PCI device hangs."""
    return machine.number(machine.pci_device(bus) / "numa_node")


def numa_nodes() -> Dict[int, List[int]]:
    """NUMA nodes that have memory and processors, with their distances to all nodes in the order of their numbers."""
    distances = {}
    for folder in machine.NODES.glob("node[0-9]*"):
        memory = re.search(r"MemTotal:\s*(\d+)", text(folder / "meminfo"))
        if text(folder / "cpulist") and memory and int(memory.group(1)):
            distances[int(folder.name[4:])] = list(map(int, text(folder / "distance").split()))
    return dict(sorted(distances.items()))


def farthest(near: int, nodes: Dict[int, List[int]]) -> Optional[int]:
    """Return the node from which `near` is farthest; None if there is no other."""
    others = [node for node in nodes if node != near]
    listed = sorted(nodes)
    position = listed.index(near) if near in nodes else 0
    if not others:
        return None
    return max(others, key=lambda node: nodes[node][position] if position < len(nodes[node]) else 0)


def cpu_model() -> str:
    """Return the processor's name; Arm's kernel tells numbers only."""
    lines = text(PROC / "cpuinfo").splitlines()
    for key in ("model name", "cpu model", "CPU part"):
        for line in lines:
            if line.startswith(key):
                return line.partition(":")[2].strip()
    return ""


_COLUMNS = (
    *("index", "clocks.sm", "clocks.mem", "temperature.gpu", "power.draw"),
    *("pcie.link.gen.current", "pcie.link.width.current"),
)
# from Ampere on `power.draw` is the average of a second; older drivers have that alone
_INSTANT = "power.draw.instant"
# drivers before 535 have the older name only
_REASONS = ("clocks_event_reasons.active", "clocks_throttle_reasons.active")
_PAUSE_S = 0.05
# NVML's bits; idle (0x1) is no reason while something runs
_BITS = {
    0x2: "application clocks",
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x10: "sync boost",
    0x20: "thermal (software)",
    0x40: "thermal (hardware)",
    0x80: "power brake",
    0x100: "display clocks",
}


class Sample(NamedTuple):
    """One GPU at one moment of the monotonic clock."""

    at: float
    values: Dict[str, Optional[float]]
    reasons: Optional[int]


class Watch:
    """Asks from `start` to `stop`; `between` sums up a stretch of time."""

    def __init__(self) -> None:
        self._samples: Dict[int, List[Sample]] = {}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> "Watch":
        """Begin to ask."""
        self._thread.start()
        return self

    def stop(self) -> None:
        """End asking."""
        self._ended.set()

    def between(self, gpu: int, began: float, ended: float) -> Dict[str, Any]:
        """Return what was seen of this GPU; `samples` 0 if nothing was."""
        return summary([sample for sample in list(self._samples.get(gpu, [])) if began <= sample.at <= ended])

    def _run(self) -> None:
        ways = [[*_COLUMNS, *power, reasons] for reasons in _REASONS for power in ([_INSTANT], [])]
        while ways and not self._ended.is_set():
            asked = time.monotonic()
            rows = smi("--query-gpu=" + ",".join(ways[0]), "--format=csv,noheader,nounits")
            if rows is None:  # no such column, or no nvidia-smi at all
                ways.pop(0)
                continue
            at = (asked + time.monotonic()) / 2
            for line in rows.splitlines():
                cells = [cell.strip() for cell in line.split(",")]
                if len(cells) == len(ways[0]) and cells[0].isdigit():
                    values = dict(zip(ways[0], map(value_of, cells)))  # noqa: B905 - Python 3.8
                    instant = values.get(_INSTANT)
                    values["power.draw"] = values["power.draw"] if instant is None else instant
                    mask = int(cells[-1], 16) if cells[-1].startswith("0x") else None
                    self._samples.setdefault(int(cells[0]), []).append(Sample(at, values, mask))
            self._ended.wait(_PAUSE_S)


def summary(samples: Sequence[Sample]) -> Dict[str, Any]:
    """Return the lowest and the usual clock, the highest temperature and power, the best link, and every reason."""

    def known(name: str) -> List[float]:
        return sorted(value for sample in samples for value in [sample.values.get(name)] if value is not None)

    clocks, memory = known("clocks.sm"), known("clocks.mem")
    masks = [sample.reasons for sample in samples if sample.reasons is not None]
    return {
        "samples": len(samples),
        "clock_mhz": clocks[len(clocks) // 2] if clocks else None,
        "clock_min_mhz": clocks[0] if clocks else None,
        "memory_clock_mhz": memory[len(memory) // 2] if memory else None,
        "temperature_c": max(known("temperature.gpu"), default=None),
        "power_w": max(known("power.draw"), default=None),
        "pcie_gen_now": max(known("pcie.link.gen.current"), default=None),
        "pcie_width_now": max(known("pcie.link.width.current"), default=None),
        "throttled": sorted({name for bit, name in _BITS.items() for mask in masks if mask & bit}) if masks else None,
    }
