"""Reads `nvidia-smi topo -m`: how GPUs and NICs of one host reach each other."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from nodectl.parsers.nvidia.smi_matrix import Matrix, read_matrix
from nodectl.parsers.nvidia.words import refused
from nodectl.parsers.text import lines_of, untagged

TOOL = "nvidia-smi-topo"
_WORDS = r"NV[0-9]{1,3}|NODE|PIX|PXB|PHB|PSB|SYS|SOC|X"
_LEGEND = re.compile(r"(NIC[0-9]{1,4}): *(\S+)\s*")


@dataclass(frozen=True, slots=True)
class NvidiaSmiTopo:
    """The matrix without its diagonal; a link or an affinity that is refused stands in `unavailable`."""

    gpus: tuple[str, ...]
    nics: tuple[str, ...]
    nic_devices: Mapping[str, str]
    links: Mapping[str, Mapping[str, str]]
    cpu_affinity: Mapping[str, str | None]
    numa_affinity: Mapping[str, str | None]
    gpu_numa_id: Mapping[str, str | None]
    unavailable: Mapping[str, str] = field(default_factory=dict)


def parse_nvidia_smi_topo(text: str) -> NvidiaSmiTopo:
    """ParseError for a cut row, a word that is no link, or where there is no matrix."""
    matrix = read_matrix(TOOL, list(untagged(lines_of(text, TOOL))), _WORDS)
    nics = tuple(name for name in matrix.names if name not in matrix.gpus)
    unavailable = {f"links.{pair}": word for pair, word in matrix.refused.items()}
    cpus, nodes, gpu_nodes = (
        _behind(matrix, label, key, unavailable)
        for label, key in (
            ("CPU Affinity", "cpu_affinity"),
            ("NUMA Affinity", "numa_affinity"),
            ("GPU NUMA ID", "gpu_numa_id"),
        )
    )
    # drivers before NIC0, NIC1, … name the columns after the devices
    devices = {name: name for name in nics if not name.startswith("NIC")}
    for line in matrix.rest:
        if (match := _LEGEND.search(line.text)) and match[1] in nics:
            devices[match[1]] = match[2]
    return NvidiaSmiTopo(matrix.gpus, nics, devices, matrix.cells, cpus, nodes, gpu_nodes, unavailable)


def _behind(matrix: Matrix, label: str, key: str, unavailable: dict[str, str]) -> dict[str, str | None]:
    if label not in matrix.labels:
        return {}
    at = matrix.labels.index(label)
    affinity: dict[str, str | None] = {}
    for name in matrix.gpus:
        cells = matrix.behind.get(name, [])
        # nvidia-smi puts an empty cell before the last column
        last = at == len(matrix.labels) - 1 and len(cells) > len(matrix.labels)
        value = cells[-1] if last else cells[at] if at < len(cells) else ""
        if refused(value):
            unavailable[f"{key}.{name}"] = value
        affinity[name] = None if refused(value) else value or None
    return affinity
