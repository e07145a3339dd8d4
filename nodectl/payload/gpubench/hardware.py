"""What of GPUs, PCI and NUMA this host shows without torch."""

import subprocess
from pathlib import Path
from typing import Dict, List, NamedTuple, Optional

SYS = Path("/sys")
PROC = Path("/proc")
DEV = Path("/dev")
_NVIDIA = "0x10de"
# display and 3D controllers
_CLASSES = ("0x0300", "0x0302")
# GPUs of NVIDIA's that are no PCI devices of this kernel
_ELSEWHERE = ("dxg", "nvhost-gpu", "nvgpu")
_SMI_S = 60.0
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
    found = max(
        len(list((PROC / "driver/nvidia/gpus").glob("*"))),
        len(list(DEV.glob("nvidia[0-9]*"))),
        sum(_is_gpu(each) for each in (SYS / "bus/pci/devices").glob("*")),
        _listed(),
    )
    if found:
        return found
    # a kernel without PCI has no such folder; one whose devices are not shown has nothing below /sys/bus
    told = any((SYS / "bus").glob("*")) and not any((DEV / name).exists() for name in _ELSEWHERE)
    return 0 if told else None


def _is_gpu(device: Path) -> bool:
    return text(device / "vendor") == _NVIDIA and text(device / "class").startswith(_CLASSES)


def _listed() -> int:
    return sum(line.startswith("GPU ") for line in (smi("-L") or "").splitlines())


def smi(*args: str) -> Optional[str]:
    """What nvidia-smi prints; None where there is none, it fails or hangs."""
    try:
        done = subprocess.run(
            ["nvidia-smi", *args],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=_SMI_S,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.decode(errors="replace") if done.returncode == 0 else None


def cards() -> List[Card]:
    """By nvidia-smi's index, which is CUDA's where devices are in the order of the PCI bus."""
    found = []
    for row in (smi("--query-gpu=" + ",".join(_COLUMNS), "--format=csv,noheader,nounits") or "").splitlines():
        cells = [cell.strip() for cell in row.split(",")]
        if len(cells) == len(_COLUMNS) and cells[0].isdigit():
            gen, width, clock, power = (number(cell) for cell in cells[3:])
            found.append(
                Card(
                    int(cells[0]),
                    cells[1],
                    cells[2],
                    None if gen is None else int(gen),
                    None if width is None else int(width),
                    clock,
                    power,
                )
            )
    return found


def number(cell: str) -> Optional[float]:
    """None for `[N/A]`, `[Not Supported]` and the like."""
    try:
        return float(cell)
    except ValueError:
        return None


def numa_of(bus: str) -> Optional[int]:
    """The NUMA node at which a PCI device hangs; nvidia-smi writes eight digits of domain, sysfs four."""
    node = text(SYS / "bus/pci/devices" / bus[-12:].lower() / "numa_node")
    return int(node) if node.isdigit() else None


def numa_nodes() -> Dict[int, List[int]]:
    """NUMA nodes that have memory and processors, with their distances to all nodes in the order of their numbers."""
    found = {}
    for folder in (SYS / "devices/system/node").glob("node[0-9]*"):
        if text(folder / "cpulist") and _total_kb(folder):
            found[int(folder.name[4:])] = [int(each) for each in text(folder / "distance").split()]
    return dict(sorted(found.items()))


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


def text(path: Path) -> str:
    """A file's text without its line end; empty where it cannot be read."""
    try:
        return path.read_text().strip()
    except (OSError, UnicodeDecodeError):
        return ""
