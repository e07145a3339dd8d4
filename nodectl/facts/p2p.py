"""Between which GPUs the driver allows reads from peer to peer."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from nodectl.facts.base import Fact, parsed_as, tally
from nodectl.model.recording import Command, Recording

if TYPE_CHECKING:
    from nodectl.parsers.nvidia.smi_p2p import NvidiaSmiP2p

_KEY = "nvidia-smi-p2p"


def _read(recording: Recording) -> NvidiaSmiP2p:
    matrix: NvidiaSmiP2p = parsed_as(recording, _KEY)
    return matrix


def _words(matrix: NvidiaSmiP2p) -> str:
    return tally(Counter(word for row in matrix.status.values() for word in row.values())) or "one GPU alone"


FACT = Fact(
    "p2p",
    (Command(_KEY, ("nvidia-smi", "topo", "-p2p", "r"), deadline_s=20, hardware=True),),
    _read,
    _words,
    row=620,
)
