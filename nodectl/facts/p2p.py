"""Between which GPUs the driver allows reads from peer to peer."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from nodectl.facts.base import Fact, parsed_as, tally
from nodectl.model.recording import Command

if TYPE_CHECKING:
    from nodectl.parsers.nvidia.smi_topo import NvidiaSmiP2p

_KEY = "nvidia-smi-p2p"


FACT: Fact[NvidiaSmiP2p] = Fact(
    "p2p",
    (Command(_KEY, ("nvidia-smi", "topo", "-p2p", "r"), deadline_s=20, hardware=True),),
    lambda recording: parsed_as(recording, _KEY),
    lambda matrix: tally(Counter(word for row in matrix.status.values() for word in row.values())) or "one GPU alone",
    row=620,
)
