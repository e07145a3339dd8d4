"""Reads what `nvidia-smi` prints without options: its table of GPUs and of the processes on them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from nodectl.facts.parsers.nvidia.words import no_output
from nodectl.facts.parsers.text import Line, bus_id, lines_of, unreadable, untagged

TOOL = "nvidia-smi"
_HEAD = re.compile(
    r"\|\s*NVIDIA-SMI\s+(?P<smi>\S+)\s+(?:Driver|KMD) Version:\s*(?P<driver>\S+)"
    r"(?:\s+CUDA(?: UMD)? Version:\s*(?P<cuda>\S+))?\s*\|"
)
_GPU = re.compile(
    r"\|\s+(?P<index>\d{1,4})\s+(?:(?P<name>\S.*?)\s+)??(?P<persistence>On|Off|N/A|ERR!|WDDM|TCC|MCDM)\s+\|"
    r"\s+(?P<bus_id>[0-9A-Fa-f]{4,8}:[0-9A-Fa-f:.]{6,10}|N/A|ERR!)\s*(?:On|Off|N/A|ERR!)\s+\|"
    r"\s+(?P<ecc_uncorrected>\S+)\s+\|"
)
_USE = re.compile(
    r"\|\s*(?:\d{1,3}%|N/A|ERR!)\s+(?P<temperature_c>\d{1,3}C|N/A|ERR!)\s+(?P<performance_state>P\d{1,2}|N/A|ERR!)"
    r"\s+(?P<power_draw_w>\S+)\s*/\s*(?P<power_limit_w>\S+)\s+\|"
    r"\s+(?:(?P<memory_used_mib>\d{1,9}(?:MiB|\.{3})|N/A|ERR!)"
    r"\s*/\s*(?P<memory_total_mib>\d{1,9}(?:MiB|\.{3})|N/A|ERR!)|(?P<memory>[A-Z][^|/]*?|N/A))\s+\|"
    r"\s+(?P<utilization_percent>\d{1,3}%|N/A|ERR!)\s+\S.*?\s+\|"
)
_PROCESS = re.compile(
    r"\|\s+(?P<gpu>\d{1,4})\s+(?:(?:N/A|\d{1,4})\s+(?:N/A|\d{1,4})\s+)?(?P<pid>\d{1,10})\s+(?P<type>[CGM+]{1,5})\s+(?P<name>\S.*?)"
    r"\s+(?P<memory>\d{1,9}MiB|N/A)\s+\|"
)
_ERROR = "ERR!"
_GARBLED = "the row of a GPU is cut or garbled"
_UNREAD = re.compile(r"ERR!|\d*\.{3}")
_NUMBERS = (
    *("ecc_uncorrected", "temperature_c", "power_draw_w", "power_limit_w", "memory_used_mib", "memory_total_mib"),
    "utilization_percent",
)


@dataclass(frozen=True, slots=True)
class TableGpu:
    """One GPU of the table. A value is None if the table has N/A, Not Supported or an error for it; a name can be cut.

    `unavailable` holds the error: `ERR!`, `GPU is lost` in place of the memory, or a shortened number as `14377...`.
    A GPU that shares the machine's memory (DGX Spark, Jetson) has no memory figures, and Jetson's has no PCI address.
    """

    index: int
    name: str | None
    bus_id: str | None
    persistence: bool | None
    ecc_uncorrected: int | None
    temperature_c: int | None
    performance_state: str | None
    power_draw_w: float | None
    power_limit_w: float | None
    memory_used_mib: int | None
    memory_total_mib: int | None
    utilization_percent: int | None
    unavailable: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TableProcess:
    """A process on a GPU."""

    gpu: int
    pid: int
    type: str
    name: str
    memory_mib: int | None


@dataclass(frozen=True, slots=True)
class NvidiaSmi:
    """The table, as far as it goes: `nvidia-smi -q` tells more, and exactly."""

    driver_version: str | None
    cuda_version: str | None
    gpus: tuple[TableGpu, ...]
    processes: tuple[TableProcess, ...]


def parse_nvidia_smi(text: str) -> NvidiaSmi:
    """Read the table; raise ParseError for none, for one without GPUs, and for a row that is cut or of another form."""
    lines = list(untagged(lines_of(text, TOOL)))
    head: re.Match[str] | None = None
    gpus: list[TableGpu] = []
    processes: list[TableProcess] = []
    rows: list[Line] = []  # of one GPU
    is_of_gpus: bool | None = None
    for line in lines:
        content = line.text.strip()
        if match := _HEAD.match(content):
            head = head or match
        elif content.startswith("|="):
            is_of_gpus = is_of_gpus is None
        elif is_of_gpus and content.startswith("|") and not content.startswith("|-"):
            rows.append(Line(line.number, content))
            if content.count("|") != 4 or len(rows) > 3:
                raise unreadable(TOOL, line, _GARBLED)
        elif is_of_gpus and rows:
            gpus.append(_gpu(rows))
            rows = []
        elif is_of_gpus and not content:
            is_of_gpus = False
        elif gpus and _GPU.match(content):
            raise unreadable(TOOL, line, "GPUs are listed above: these are two outputs")
        elif match := _PROCESS.match(content):
            held_mib = _whole(match["memory"])
            processes.append(TableProcess(int(match["gpu"]), int(match["pid"]), match["type"], match["name"], held_mib))
    gpus += [_gpu(rows)] if rows else []
    if not gpus:
        raise no_output(TOOL, lines, "table with '| NVIDIA-SMI … Driver Version: … |'")
    driver, cuda = (head["driver"], head["cuda"]) if head else (None, None)
    return NvidiaSmi(driver, None if cuda in ("N/A", "ERR!") else cuda, tuple(gpus), tuple(processes))


def _gpu(rows: Sequence[Line]) -> TableGpu:
    first, second = _GPU.match(rows[0].text), _USE.match(rows[1].text) if len(rows) > 1 else None
    if first is None or second is None:
        raise unreadable(TOOL, rows[first is not None and len(rows) > 1], _GARBLED)
    printed = {**first.groupdict(""), **second.groupdict("")}
    memory, place, state = printed.pop("memory"), printed["bus_id"], printed["performance_state"]
    unavailable = {key: word for key, word in printed.items() if _UNREAD.fullmatch(word)}
    if memory not in ("", "N/A", "Not Supported"):
        unavailable["memory_used_mib"] = unavailable["memory_total_mib"] = memory
    return TableGpu(
        index=int(first["index"]),
        name=None if first["name"] == _ERROR else first["name"],
        bus_id=None if place in ("N/A", _ERROR) else bus_id(place) or place,
        persistence={"On": True, "Off": False}.get(first["persistence"]),
        performance_state=None if state in ("N/A", _ERROR) else state,
        unavailable=unavailable,
        **{name: _whole(printed[name]) for name in _NUMBERS},
    )


def _whole(text: str) -> int | None:
    digits = re.fullmatch(r"(\d{1,9})(?:%|C|W|MiB)?", text)
    return int(digits[1]) if digits else None
