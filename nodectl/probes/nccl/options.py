"""The nccl probe's own options."""

from __future__ import annotations

from dataclasses import dataclass

from nodectl.common.units import MIB
from nodectl.predict.collectives import COLLECTIVES
from nodectl.probes.base import ProbeOptions
from nodectl.probes.options import Choice, Sizes, Text, names, option, sweep

SCOPES = ("all", "node", "pairs", "rail")
ENGINES = ("auto", "torch", "nccl-tests")


@dataclass(frozen=True, slots=True)
class NcclOptions(ProbeOptions):
    """`collectives` empty are all of them; `sizes` are of a rank's buffer."""

    sizes: Sizes = option(
        Sizes((MIB, 64 * MIB)),
        Text("SIZE,…|A..B|A..max", sweep),
        "Message sizes; A..B by powers of two (A..B*4: of four), A..max up to the memory's limit.",
        shown="1MiB,64MiB",
    )
    collectives: tuple[str, ...] = option((), Text("NAME[,NAME…]", names), f"{', '.join(COLLECTIVES)}.", shown="all")
    scope: str = option(
        "all", Choice(SCOPES), "All hosts together, each by itself, pairs, or one rail after the other."
    )
    engine: str = option("auto", Choice(ENGINES), "torch.distributed, or NVIDIA's programs where they are installed.")
