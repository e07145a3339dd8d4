"""What of GPUs, PCI and NUMA this host shows without torch."""

from pathlib import Path
from typing import Dict, List, NamedTuple, Optional

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
_COLUMNS = ("index", "uuid", "pci.bus_id", "pcie.link.gen.max", "pcie.link.width.max", "clocks.max.sm", "power.limit")


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
    """NVIDIA's GPUs of this host, whether or not a program can use them; None where that cannot be told."""
    count = max(
        len(list((PROC / "driver/nvidia/gpus").glob("*"))),
        len(list(DEV.glob("nvidia[0-9]*"))),
        sum(_is_gpu(device) for device in machine.PCI.glob("*")),
        sum(line.startswith("GPU ") for line in (smi("-L") or "").splitlines()),
    )
    if count:
        return count
    # a kernel without PCI has no such folder; one whose devices are not shown has nothing below /sys/bus
    certain = any((SYS / "bus").glob("*")) and not any((DEV / name).exists() for name in _ELSEWHERE)
    return 0 if certain else None


def _is_gpu(device: Path) -> bool:
    return text(device / "vendor") == _NVIDIA and text(device / "class").startswith(_CLASSES)


def cards() -> List[Card]:
    """By nvidia-smi's index, which is CUDA's where devices are in the order of the PCI bus."""
    known = []
    for row in (smi("--query-gpu=" + ",".join(_COLUMNS), "--format=csv,noheader,nounits") or "").splitlines():
        cells = [cell.strip() for cell in row.split(",")]
        if len(cells) == len(_COLUMNS) and cells[0].isdigit():
            gen, width = (int(cell) if cell.isdigit() else None for cell in cells[3:5])
            clock, power = map(value_of, cells[5:])
            known.append(Card(int(cells[0]), cells[1], cells[2], gen, width, clock, power))
    return known


def value_of(cell: str) -> Optional[float]:
    """Return what nvidia-smi prints as a number; None for `[N/A]`, `[Not Supported]` and the like."""
    try:
        return float(cell)
    except ValueError:
        return None


def numa_of(bus: str) -> Optional[int]:
    """The NUMA node at which a PCI device hangs."""
    return machine.number(machine.pci_device(bus) / "numa_node")


def numa_nodes() -> Dict[int, List[int]]:
    """NUMA nodes that have memory and processors, with their distances to all nodes in the order of their numbers."""
    distances = {}
    for folder in machine.NODES.glob("node[0-9]*"):
        if text(folder / "cpulist") and _total_kb(folder):
            distances[int(folder.name[4:])] = list(map(int, text(folder / "distance").split()))
    return dict(sorted(distances.items()))


def _total_kb(node: Path) -> int:
    for line in text(node / "meminfo").splitlines():
        words = line.split()
        if "MemTotal:" in words:
            return int(words[words.index("MemTotal:") + 1])
    return 0


def farthest(near: int, nodes: Dict[int, List[int]]) -> Optional[int]:
    """The node from which `near` is farthest; None where there is no other."""
    others = [node for node in nodes if node != near]
    listed = sorted(nodes)
    position = listed.index(near) if near in nodes else 0
    if not others:
        return None
    return max(others, key=lambda node: nodes[node][position] if position < len(nodes[node]) else 0)


def cpu_model() -> str:
    """The processor's name; Arm's kernel tells numbers only."""
    lines = text(PROC / "cpuinfo").splitlines()
    for key in ("model name", "cpu model", "CPU part"):
        for line in lines:
            if line.startswith(key):
                return line.partition(":")[2].strip()
    return ""
