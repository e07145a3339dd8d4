"""Reads the CSV of nvidia-smi's queries, with its header line: `--query-gpu=…` and `--query-compute-apps=…`.

The header names units, cells have no quotes, and words stand in place of values.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from nodectl.parsers.nvidia.words import LostGpu, is_noise, lost_gpu, no_output, refused
from nodectl.parsers.text import Line, lines_of, unreadable, untagged

TOOL = "nvidia-smi-query"
APPS_TOOL = "compute-apps"
Value = str | int | float | None

_COLUMN = re.compile(r"[a-z][A-Za-z0-9_.]*")
_UNIT = re.compile(r" \[[^\]]*\]$")
# a header of one column must be one of NVIDIA's, or any word would do
_SINGLE = re.compile(r".*[._].*|index|name|uuid|serial|count|timestamp|pstate|hostname|pid")
_REFUSED = re.compile(r"\[[^\]]*\]")
_NUMBER = re.compile(r"(-?[0-9]{1,18}(?:\.[0-9]{1,9})?)(?: (?:MiB|GiB|MHz|KB/s|W|%|C|ms|us))?")
_CUT_UNIT = re.compile(r"-?[0-9]{1,18}(?:\.[0-9]{0,9})? (?:M|Mi|MH|G|Gi|K|KB|KB/|m|u)")
_TEXT_COLUMNS = re.compile(r"serial|uuid|name|version|bus_id|inforom|vbios|address$|reasons(?:\.|$)")


@dataclass(frozen=True, slots=True)
class CsvRow:
    """Values by column name without its unit; refused ones are None and stand in `unavailable` as printed."""

    values: dict[str, Value]
    unavailable: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NvidiaSmiQuery:
    """A row a GPU; `lost` holds the GPUs that the driver cannot reach any more."""

    gpus: tuple[CsvRow, ...]
    lost: tuple[LostGpu, ...] = ()


@dataclass(frozen=True, slots=True)
class ComputeApps:
    """A row for each process that computes on a GPU; none where only the header is printed."""

    processes: tuple[CsvRow, ...]
    lost: tuple[LostGpu, ...] = ()


def parse_nvidia_smi_query(text: str) -> NvidiaSmiQuery:
    """ParseError without a header line, for a row of another width, or where nvidia-smi says why it failed."""
    return NvidiaSmiQuery(*_table(text, TOOL))


def parse_compute_apps(text: str) -> ComputeApps:
    """ParseError as for `parse_nvidia_smi_query`."""
    return ComputeApps(*_table(text, APPS_TOOL))


def _table(text: str, tool: str) -> tuple[tuple[CsvRow, ...], tuple[LostGpu, ...]]:
    lines = list(untagged(lines_of(text, tool)))
    header: list[str] = []
    rows: list[CsvRow] = []
    lost: list[LostGpu] = []
    for line in lines:
        if line.text.lstrip().startswith("```"):
            if header:
                break  # Markdown's fence around the output
        elif not line.text.strip():
            continue
        elif lost_one := lost_gpu(line.text):
            lost.append(lost_one)
        elif not header:
            header = _header(line.text)
        elif _header(line.text) != header and (row := _row(tool, header, line)):
            rows.append(row)
    if not header:
        raise no_output(tool, lines, "header line of --format=csv (without noheader)")
    return tuple(rows), tuple(lost)


def _header(text: str) -> list[str]:
    names = [_UNIT.sub("", cell.strip()) for cell in text.split(",")]
    right = all(_COLUMN.fullmatch(name) for name in names) and (len(names) > 1 or _SINGLE.fullmatch(names[0]))
    return names if right else []


def _row(tool: str, header: list[str], line: Line) -> CsvRow | None:
    cells = [cell.strip() for cell in line.text.split(",")]
    if is_noise(line.text) and not (refused(cells[0]) or _REFUSED.fullmatch(cells[0])):
        return None
    surplus = len(cells) - len(header)
    if surplus > 0 and "process_name" in header:
        # the command line of a process may hold commas, and nvidia-smi quotes nothing
        at = header.index("process_name")
        cells[at : at + surplus + 1] = [", ".join(cells[at : at + surplus + 1])]
    if len(cells) != len(header):
        raise unreadable(tool, line, f"{len(cells)} columns, the header has {len(header)}")
    named = list(zip(header, cells, strict=True))
    unavailable = {name: cell for name, cell in named if cell and (_REFUSED.fullmatch(cell) or refused(cell))}
    cut = next((name for name, cell in named if _CUT_UNIT.fullmatch(cell) and not _TEXT_COLUMNS.search(name)), None)
    if cut:
        raise unreadable(tool, line, f"the unit of {cut} is cut")
    return CsvRow({name: None if name in unavailable else _value(name, cell) for name, cell in named}, unavailable)


def _value(name: str, cell: str) -> Value:
    match = _NUMBER.fullmatch(cell)
    if match is None or _TEXT_COLUMNS.search(name):
        return cell or None
    return float(match[1]) if "." in match[1] else int(match[1])
