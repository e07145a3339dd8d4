"""Reads what `nvidia-smi --query-…` lists, as CSV."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from nodectl.facts.parsers.nvidia.words import LostGpu, is_noise, lost_gpu, no_output, refused
from nodectl.facts.parsers.text import Line, lines_of, unreadable, untagged

TOOL = "nvidia-smi-query"
Value = str | int | float | None

_COLUMN = re.compile(r"[a-z][A-Za-z0-9_.]*")
_UNIT = re.compile(r" \[[^\]]*\]$")
# of each GPU another one; two that differ so may have the same UUID
_KEYS = {"index", "pci.bus_id"}
# a header of one column must be one of NVIDIA's, or any word would do
_SINGLE = re.compile(r".*[._].*|index|name|uuid|serial|count|timestamp|pstate|hostname|pid")
_REFUSED = re.compile(r"\[[^\]]*\]")
_NUMBER = re.compile(r"(-?[0-9]{1,18}(?:\.[0-9]{1,9})?)(?: (?:MiB|GiB|MHz|KB/s|W|%|C|ms|us))?")
_BEYOND = re.compile(r"-?[0-9]{19,}(?: \S+)?")
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


def parse_nvidia_smi_query(text: str) -> NvidiaSmiQuery:
    """Read the CSV; raise ParseError without a header, for a row of another width, or with nvidia-smi's own reason."""
    lines = list(untagged(lines_of(text, TOOL)))
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
        elif _header(line.text) != header and (row := _row(header, line)):
            keys = _KEYS.intersection(header) or ("uuid",)
            if any(row.values.get(key) == other.values.get(key) is not None for key in keys for other in rows):
                raise unreadable(TOOL, line, "this GPU is listed above: these are two outputs")
            rows.append(row)
    if not header:
        raise no_output(TOOL, lines, "header line of --format=csv (without noheader)")
    return NvidiaSmiQuery(tuple(rows), tuple(lost))


def _header(text: str) -> list[str]:
    names = [_UNIT.sub("", cell.strip()) for cell in text.split(",")]
    right = all(_COLUMN.fullmatch(name) for name in names) and (len(names) > 1 or _SINGLE.fullmatch(names[0]))
    return names if right else []


def _row(header: list[str], line: Line) -> CsvRow | None:
    cells = [cell.strip() for cell in line.text.split(",")]
    if is_noise(line.text) and not (refused(cells[0]) or _REFUSED.fullmatch(cells[0])):
        return None
    if len(cells) != len(header):
        raise unreadable(TOOL, line, f"{len(cells)} columns, the header has {len(header)}")
    named = list(zip(header, cells, strict=True))
    # a number that no GPU has is -1 without its sign
    unavailable = {
        name: cell
        for name, cell in named
        if _REFUSED.fullmatch(cell) or refused(cell) or (_BEYOND.fullmatch(cell) and not _TEXT_COLUMNS.search(name))
    }
    cut = next((name for name, cell in named if _CUT_UNIT.fullmatch(cell) and not _TEXT_COLUMNS.search(name)), None)
    if cut:
        raise unreadable(TOOL, line, f"the unit of {cut} is cut")
    return CsvRow({name: None if name in unavailable else _value(name, cell) for name, cell in named}, unavailable)


def _value(name: str, cell: str) -> Value:
    match = _NUMBER.fullmatch(cell)
    if match is None or _TEXT_COLUMNS.search(name):
        return cell or None
    return float(match[1]) if "." in match[1] else int(match[1])
