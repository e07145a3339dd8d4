"""Reads `nvidia-smi --query-compute-apps=… --format=csv[,nounits]` with its header line."""

from __future__ import annotations

from dataclasses import dataclass, field

from nodectl.parsers.nvidia.csv_cells import Value, rows_of
from nodectl.parsers.nvidia.words import LostGpu
from nodectl.parsers.text import lines_of, untagged

TOOL = "compute-apps"


@dataclass(frozen=True, slots=True)
class ComputeApp:
    """Values by column name without its unit; refused ones are None and stand in `unavailable` as printed."""

    values: dict[str, Value]
    unavailable: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ComputeApps:
    """The processes that compute on the GPUs; none where only the header is printed."""

    processes: tuple[ComputeApp, ...]
    lost: tuple[LostGpu, ...] = ()


def parse_compute_apps(text: str) -> ComputeApps:
    """ParseError without a header line, for a row of another width, or where nvidia-smi says why it failed."""
    lost: list[LostGpu] = []
    rows = rows_of(TOOL, list(untagged(lines_of(text, TOOL))), lost)
    return ComputeApps(tuple(ComputeApp(values, unavailable) for values, unavailable in rows), tuple(lost))
