"""Reads what `nvidia-smi` lists: `--query-…` as CSV, `-L`, and `--version`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from nodectl.facts.parsers.nvidia.words import LostGpu, is_noise, lost_gpu, no_output, refused
from nodectl.facts.parsers.text import Line, lines_of, unreadable, untagged

SMI_QUERY_TOOL = "nvidia-smi-query"
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
    """Read the CSV; raise ParseError without a header, for a row of another width, or with nvidia-smi's own reason."""
    return NvidiaSmiQuery(*_table(text, SMI_QUERY_TOOL))


def parse_compute_apps(text: str) -> ComputeApps:
    """Read the output; raise ParseError as for `parse_nvidia_smi_query`."""
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


# Reads `nvidia-smi -L`.

SMI_LIST_TOOL = "nvidia-smi-list"
GPU_ROW = re.compile(r"GPU ([0-9]{1,6}): (.*?) ?\(UUID: ([^()]+)\)\s*")
_NAMELESS = re.compile(r"Unable to determine the product name for gpu ([0-9]{1,6}): (.*)")
_MIG_ROW = re.compile(r"MIG (\S+) +Device +([0-9]{1,6}): \(UUID: ([^()]+)\)\s*")
_STARTS_GPU = re.compile(r"GPU +[0-9]+(?::|$)")
_STARTS_MIG = re.compile(r"MIG +[0-9]+[gc.]")


@dataclass(frozen=True, slots=True)
class ListedMig:
    """A slice of a GPU, by its place in the GPU's list."""

    profile: str
    uuid: str
    index: int


@dataclass(frozen=True, slots=True)
class ListedGpu:
    """A GPU and its MIG devices: none if MIG is off, or on without an instance."""

    index: int
    name: str | None
    uuid: str | None
    mig_devices: tuple[ListedMig, ...] = ()
    unavailable: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NvidiaSmiList:
    """All GPUs that the driver shows; `lost` holds those that it cannot reach any more."""

    gpus: tuple[ListedGpu, ...]
    lost: tuple[LostGpu, ...] = ()


def parse_nvidia_smi_list(text: str) -> NvidiaSmiList:
    """Read the output; raise ParseError for a cut row, or if there is none."""
    lines = list(untagged(lines_of(text, SMI_LIST_TOOL)))
    gpus: list[ListedGpu] = []
    lost: list[LostGpu] = []
    for line in lines:
        content = line.text.strip()
        if gone := lost_gpu(content):
            lost.append(gone)
        elif _STARTS_GPU.match(content):
            gpus.append(_gpu(*gpu_row(SMI_LIST_TOOL, line, content)))
        elif nameless := _NAMELESS.fullmatch(content):
            gpus.append(ListedGpu(int(nameless[1]), None, None, unavailable={"name": nameless[2]}))
        elif _STARTS_MIG.match(content):
            match = _MIG_ROW.fullmatch(content)
            if match is None or not gpus:
                raise unreadable(SMI_LIST_TOOL, line, "no whole row of a MIG device below its GPU")
            device = ListedMig(match[1], match[3], int(match[2]))
            gpus[-1] = replace(gpus[-1], mig_devices=(*gpus[-1].mig_devices, device))
    if not gpus:
        raise no_output(SMI_LIST_TOOL, lines, "'GPU 0: <name> (UUID: …)'")
    return NvidiaSmiList(tuple(gpus), tuple(lost))


def gpu_row(tool: str, line: Line, content: str) -> tuple[int, str, str]:
    """Index, name and UUID of a row; ParseError if it is cut."""
    match = GPU_ROW.fullmatch(content)
    if match is None:
        raise unreadable(tool, line, "no 'GPU <index>: <name> (UUID: …)'")
    return int(match[1]), match[2], match[3].strip()


def _gpu(index: int, name: str, uuid: str) -> ListedGpu:
    printed = {"name": name, "uuid": uuid}
    unavailable = {key: value for key, value in printed.items() if refused(value)}
    given = {key: None if key in unavailable or not value else value for key, value in printed.items()}
    return ListedGpu(index, given["name"], given["uuid"], unavailable=unavailable)


# Reads `nvidia-smi --version`.

SMI_VERSION_TOOL = "nvidia-smi-version"
_ROW = re.compile(r"(?P<what>NVIDIA-SMI|NVML|DRIVER|KMD|CUDA(?: UMD)?|Driver) [Vv]ersion\s*:\s*(?P<version>.*)")
_NAMES = {"NVIDIA-SMI": "smi", "NVML": "nvml", "DRIVER": "driver", "KMD": "driver", "Driver": "driver"}


@dataclass(frozen=True, slots=True)
class NvidiaSmiVersion:
    """The versions; None for what is not printed, or refused as `driver` is where none is loaded."""

    smi: str | None
    nvml: str | None
    driver: str | None
    cuda: str | None


def parse_nvidia_smi_version(text: str) -> NvidiaSmiVersion:
    """Read the output; raise ParseError for a row without its version, and if there is none."""
    lines = list(untagged(lines_of(text, SMI_VERSION_TOOL)))
    versions: dict[str, str | None] = {}
    for line in lines:
        if match := _ROW.fullmatch(line.text.strip()):
            version = match["version"].partition("[Deprecated")[0].strip()
            if not version:
                raise unreadable(SMI_VERSION_TOOL, line, "the version is cut")
            number = version if version[:1].isdigit() else None
            versions.setdefault(_NAMES.get(match["what"], "cuda"), number)
    if not versions:
        raise no_output(SMI_VERSION_TOOL, lines, "'NVIDIA-SMI version  : …'")
    return NvidiaSmiVersion(*(versions.get(name) for name in ("smi", "nvml", "driver", "cuda")))
