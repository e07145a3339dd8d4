"""Reads `nvidia-smi topo -p2p r` (and w, n, a, p): which GPUs may reach each other's memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from nodectl.parsers.nvidia.smi_matrix import read_matrix
from nodectl.parsers.text import lines_of, untagged

TOOL = "nvidia-smi-p2p"
_WORDS = r"OK|CNS|GNS|TNS|NS|DR|U|X"


@dataclass(frozen=True, slots=True)
class NvidiaSmiP2p:
    """The matrix without its diagonal: OK, or why not, in nvidia-smi's words."""

    gpus: tuple[str, ...]
    status: Mapping[str, Mapping[str, str]]
    unavailable: Mapping[str, str] = field(default_factory=dict)


def parse_nvidia_smi_p2p(text: str) -> NvidiaSmiP2p:
    """ParseError for a cut row, a word that is no status, or where there is no matrix."""
    matrix = read_matrix(TOOL, list(untagged(lines_of(text, TOOL))), _WORDS)
    return NvidiaSmiP2p(matrix.gpus, matrix.cells, {f"status.{pair}": word for pair, word in matrix.refused.items()})
