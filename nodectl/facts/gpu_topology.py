"""The matrix of links between GPUs and NICs (`nvidia-smi topo -m`), with CPU and NUMA affinity."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from nodectl.common.counting import counted
from nodectl.facts.base import Fact, parsed_as, tally
from nodectl.model.recording import Command

if TYPE_CHECKING:
    from nodectl.parsers.nvidia.smi_topo import NvidiaSmiTopo

_KEY = "nvidia-smi-topo"


def _words(matrix: NvidiaSmiTopo) -> str:
    pairs = Counter(
        link
        for number, gpu in enumerate(matrix.gpus)
        for other, link in matrix.links.get(gpu, {}).items()
        if other in matrix.gpus[number + 1 :]
    )
    nics = f", {counted(len(matrix.nics), 'NIC')}" if matrix.nics else ""
    return (tally(pairs) or f"{len(matrix.gpus)} GPU alone") + nics


FACT: Fact[NvidiaSmiTopo] = Fact(
    "gpu_topology",
    (Command(_KEY, ("nvidia-smi", "topo", "-m"), deadline_s=20, hardware=True),),
    lambda recording: parsed_as(recording, _KEY),
    _words,
    row=610,
)
