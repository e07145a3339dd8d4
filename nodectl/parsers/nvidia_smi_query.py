"""Reads `nvidia-smi --query-gpu=… --format=csv[,nounits]` with its header line."""

import csv
import re
from dataclasses import dataclass, field

from nodectl.errors import ParseError

Value = str | int | float | None

_REFUSED = re.compile(r"\[.*\]|N/A|ERR!|Unknown Error", re.IGNORECASE)
_NUMBER = re.compile(r"(-?\d+(?:\.\d+)?)(?: (?:MiB|W|MHz|%|C|ms|us|GiB))?")
_LOST = re.compile(r"(?i)unable to determine the device handle.*?([0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f])")
_TEXT_COLUMNS = re.compile(
    r"serial|uuid|name|version|bus_id|inforom|vbios|clocks_event_reasons|clocks_throttle_reasons"
)
_REASONS = re.compile(r"(?i)NVIDIA-SMI has failed|couldn't communicate|Failed to initialize NVML|No devices were found")


@dataclass(frozen=True, slots=True)
class GpuRow:
    """Values by column name without its unit; refused ones are None and stand in `unavailable` as printed."""

    values: dict[str, Value]
    unavailable: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NvidiaSmiQuery:
    """The rows; `lost` holds (bus id, text) of GPUs that the driver cannot reach any more."""

    gpus: tuple[GpuRow, ...]
    lost: tuple[tuple[str, str], ...] = ()


def parse_nvidia_smi_query(text: str) -> NvidiaSmiQuery:
    """ParseError without a header line, for a row of another width, or where nvidia-smi says why it failed."""
    header: list[str] = []
    gpus: list[GpuRow] = []
    lost: list[tuple[str, str]] = []
    for number, line in enumerate(text.splitlines(), start=1):
        if _REASONS.search(line):
            raise ParseError(f"nvidia-smi: {line.strip()}")
        if match := _LOST.search(line):
            lost.append((match[1], line.strip()))
        elif not header:
            header = _header(line)
        elif line.strip():
            gpus.append(_row(header, line, number))
    if not header and not lost:
        raise ParseError("nvidia-smi printed no header line" if text.strip() else "nvidia-smi printed nothing")
    return NvidiaSmiQuery(tuple(gpus), tuple(lost))


def _header(line: str) -> list[str]:
    names = [re.sub(r" \[.*\]$", "", each.strip()) for each in line.split(",")]
    looks_right = all(re.fullmatch(r"[a-z][A-Za-z0-9_.]*", name) for name in names)
    return names if looks_right else []


def _row(header: list[str], line: str, number: int) -> GpuRow:
    cells = [cell.strip() for cell in next(csv.reader([line], skipinitialspace=True))]
    if len(cells) != len(header):
        raise ParseError(f"nvidia-smi line {number}: {line!r}: {len(cells)} columns, the header has {len(header)}")
    unavailable = {name: cell for name, cell in zip(header, cells, strict=True) if _REFUSED.fullmatch(cell)}
    values = {
        name: None if name in unavailable else _value(name, cell) for name, cell in zip(header, cells, strict=True)
    }
    return GpuRow(values, unavailable)


def _value(name: str, cell: str) -> Value:
    match = _NUMBER.fullmatch(cell)
    if match is None or _TEXT_COLUMNS.search(name):
        return cell
    return float(match[1]) if "." in match[1] else int(match[1])
