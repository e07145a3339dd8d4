"""Reads `nvidia-smi --query-gpu=… --format=csv[,nounits]` with its header line."""

from __future__ import annotations

from dataclasses import dataclass, field

from nodectl.parsers.nvidia.csv_cells import Value, rows_of
from nodectl.parsers.nvidia.words import LostGpu
from nodectl.parsers.text import lines_of, untagged

TOOL = "nvidia-smi-query"


@dataclass(frozen=True, slots=True)
class GpuRow:
    """Values by column name without its unit; refused ones are None and stand in `unavailable` as printed."""

    values: dict[str, Value]
    unavailable: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NvidiaSmiQuery:
    """The rows; `lost` holds the GPUs that the driver cannot reach any more."""

    gpus: tuple[GpuRow, ...]
    lost: tuple[LostGpu, ...] = ()


def parse_nvidia_smi_query(text: str) -> NvidiaSmiQuery:
    """ParseError without a header line, for a row of another width, or where nvidia-smi says why it failed."""
    lost: list[LostGpu] = []
    rows = rows_of(TOOL, list(untagged(lines_of(text, TOOL))), lost)
    return NvidiaSmiQuery(tuple(GpuRow(values, unavailable) for values, unavailable in rows), tuple(lost))
