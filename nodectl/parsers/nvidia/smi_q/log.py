"""What the text and the XML of `nvidia-smi -q` have in common before any value is judged."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from nodectl.parsers.nvidia.words import LostGpu
from nodectl.parsers.text import Line


class Value(NamedTuple):
    """A value as printed, and its line."""

    text: str
    line: Line


Values = dict[str, Value]


@dataclass(slots=True)
class Block:
    """One GPU: values by path (`ecc_mode/current`); its lists are None where they are not in the output."""

    bus_id: str
    values: Values = field(default_factory=dict)
    processes: list[Values] | None = None
    mig_devices: list[Values] | None = None


@dataclass(slots=True)
class Log:
    """The whole output; `complete` is False where it ends before its end."""

    header: Values = field(default_factory=dict)
    blocks: list[Block] = field(default_factory=list)
    lost: list[LostGpu] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
