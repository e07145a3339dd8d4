"""Reads two of NVIDIA's CUDA samples: `bandwidthTest`, and the matrices of `p2pBandwidthLatencyTest`."""

from __future__ import annotations

import re
from dataclasses import dataclass

from nodectl.common.counting import counted
from nodectl.parsers.nvidia.words import no_output
from nodectl.parsers.text import Line, lines_of, real, unreadable, untagged

TOOL = "bandwidthtest"
P2P_TOOL = "p2p-bandwidth"
_DEVICE = re.compile(r"Device (?P<index>\d{1,4}): (?P<name>\S.*)")
_DIRECTION = re.compile(r"(?P<source>Host|Device) to (?P<target>Host|Device) Bandwidth, \d{1,4} Device\(s\).*")
_MEMORY = re.compile(r"(?P<memory>PINNED|PAGEABLE|WRITE-COMBINED PINNED) Memory Transfers")
_UNIT = re.compile(r"Transfer Size \(Bytes\)\s+Bandwidth\((?P<unit>GB/s|MB/s)\)")
_VALUE = re.compile(r"(?P<size>\d{1,15})\s+(?P<value>\d{1,9}\.\d{1,6})")
_BEGINS_AS_VALUE = re.compile(r"\d{4,15}(?:\s|$)")
# --csv; D2D names no kind of memory
_CSV = re.compile(
    r"bandwidthTest-(?P<source>[HD])2(?P<target>[HD])(?:-(?P<memory>[\w-]{1,40}))?, Bandwidth = "
    r"(?P<value>\d{1,9}\.\d{1,6}) (?P<unit>GB/s|MB/s), Time = [\d.]{1,20} s, "
    r"Size = (?P<size>\d{1,15}) bytes, NumDevsUsed = \d{1,4}"
)
_PLACES = {"H": "host", "D": "device"}
_RESULT = re.compile(r"Result = (?P<result>PASS|FAIL)")
_MATRIX = re.compile(
    r"(?P<name>P2P Connectivity Matrix|(?:Uni|Bi)directional P2P=\w+ .*Bandwidth.* Matrix \(GB/s\)"
    r"|P2P=\w+ Latency (?:\(P2P Writes\) )?Matrix \(us\))"
)
_COLUMNS = re.compile(r"(?:D\\D|GPU|CPU)(?P<columns>(?:\s+\d{1,4})+)")
_CELLS = re.compile(r"\d{1,4}(?:\s+\S+)*")


@dataclass(frozen=True, slots=True)
class CopyRate:
    """One copy's rate, in GB/s of 10^9 bytes, as the program counts them."""

    device: int | None
    direction: str
    memory: str
    size_bytes: int
    gb_s: float


@dataclass(frozen=True, slots=True)
class Bandwidthtest:
    """All copies in the order printed; `passed` is None where the output ends before its result."""

    devices: tuple[str, ...]
    rates: tuple[CopyRate, ...]
    passed: bool | None


@dataclass(frozen=True, slots=True)
class PeerMatrix:
    """One matrix under its own heading: rows and columns are GPUs, and their numbers stand in `gpus`."""

    name: str
    gpus: tuple[int, ...]
    rows: tuple[tuple[float, ...], ...]


@dataclass(frozen=True, slots=True)
class P2pBandwidth:
    """The matrices in the order printed."""

    matrices: tuple[PeerMatrix, ...]


def parse_bandwidthtest(text: str) -> Bandwidthtest:
    """ParseError for a row that is cut, and where no copy was measured."""
    lines = list(untagged(lines_of(text, TOOL)))
    devices: dict[int, str] = {}
    rates: list[CopyRate] = []
    direction, memory, scale, passed = "", "", 0, None
    for line in lines:
        # --mode=shmoo counts in dots, and the heading follows on their line
        content = line.text.strip(" \t#>.")
        if match := _DEVICE.fullmatch(content):
            devices[int(match["index"])] = match["name"]
        elif match := _DIRECTION.fullmatch(content):
            direction, scale = f"{match['source']} to {match['target']}".lower(), 0
        elif match := _MEMORY.fullmatch(content):
            memory = match["memory"].lower()
        elif match := _UNIT.fullmatch(content):
            scale = 1 if match["unit"] == "GB/s" else 1000
        elif direction and scale and (match := _VALUE.fullmatch(content)):
            device = next(iter(devices), None)
            rates.append(CopyRate(device, direction, memory, int(match["size"]), float(match["value"]) / scale))
        elif match := _CSV.fullmatch(content):
            rates.append(_csv_rate(match, next(iter(devices), None)))
        elif content.startswith("bandwidthTest-") and "2" in content[:17]:
            raise unreadable(TOOL, line, "the line is cut")
        elif direction and scale and _BEGINS_AS_VALUE.match(content):
            raise unreadable(TOOL, line, "the row is cut")
        elif match := _RESULT.fullmatch(content):
            passed = match["result"] == "PASS"
    if not rates:
        raise no_output(TOOL, lines, "'Host to Device Bandwidth'")
    return Bandwidthtest(tuple(devices.values()), tuple(rates), passed)


def _csv_rate(match: re.Match[str], device: int | None) -> CopyRate:
    direction = f"{_PLACES[match['source']]} to {_PLACES[match['target']]}"
    gb_s = float(match["value"]) / (1 if match["unit"] == "GB/s" else 1000)
    return CopyRate(device, direction, (match["memory"] or "").lower(), int(match["size"]), gb_s)


def parse_p2p_bandwidth(text: str) -> P2pBandwidth:
    """ParseError for a row of another width than its heading, and where there is no matrix."""
    lines = list(untagged(lines_of(text, P2P_TOOL)))
    matrices: list[PeerMatrix] = []
    name = ""
    gpus: tuple[int, ...] = ()
    rows: list[tuple[float, ...]] = []
    for line in [*lines, Line(0, "")]:
        content = line.text.strip()
        if (match := _COLUMNS.fullmatch(content)) and name and not rows:
            gpus = tuple(map(int, match["columns"].split()))
            continue
        if gpus and _CELLS.fullmatch(content):
            rows.append(_row(line, content, gpus, len(rows)))
            if len(rows) == len(gpus):
                matrices.append(PeerMatrix(name, gpus, tuple(rows)))
                gpus, rows = (), []
        elif gpus:
            raise unreadable(P2P_TOOL, line, f"{name}: {len(rows)} of {len(gpus)} rows")
        if match := _MATRIX.match(content):
            name = match["name"]
    if not matrices:
        raise no_output(P2P_TOOL, lines, "matrix of p2pBandwidthLatencyTest")
    return P2pBandwidth(tuple(matrices))


def _row(line: Line, content: str, gpus: tuple[int, ...], position: int) -> tuple[float, ...]:
    number, *cells = content.split()
    values = [real(cell) for cell in cells]
    if int(number) != gpus[position] or len(values) != len(gpus) or None in values:
        raise unreadable(P2P_TOOL, line, f"{counted(len(values), 'value')} under {counted(len(gpus), 'column')}")
    return tuple(value for value in values if value is not None)
