"""Reads `nvbandwidth`, and the CUDA samples `bandwidthTest` and `p2pBandwidthLatencyTest`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from nodectl.common.counting import counted
from nodectl.facts.parsers.json_values import find_document
from nodectl.facts.parsers.nvidia.words import is_noise, no_output
from nodectl.facts.parsers.text import Line, lines_of, real, unreadable, untagged

NVBANDWIDTH_TOOL = "nvbandwidth"
_RUNNING = re.compile(r"Running ([\w-]{1,200})\.?\s*")
_SUM = re.compile(r"SUM ([\w-]{1,200}) +([0-9.]{1,30})\s*")
_UNIT = re.compile(r"\((GB/s|ns|us|ms)\)\s*$")
_HEADER = re.compile(r"\s*[0-9]{1,6}(?:\s+[0-9]{1,6})*\s*")
_ROW = re.compile(r"\s*[0-9]{1,6}(?:\s+\S+)+\s*")
_NUMBER = re.compile(r"[0-9]{1,12}(?:\.[0-9]{1,9})?")


@dataclass(frozen=True, slots=True)
class BandwidthTest:
    """One test: by row and column, in `unit`; None for what was not run or not printed.

    `sum` is the program's, in `unit`; `sum_gb_s` that of a bandwidth alone.
    """

    name: str
    matrix: tuple[tuple[float | None, ...], ...] | None
    sum_gb_s: float | None
    unit: str | None = None
    status: str | None = None
    sum: float | None = None
    unavailable: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Nvbandwidth:
    """The tests in the order in which they ran."""

    tests: tuple[BandwidthTest, ...]
    version: str | None = None
    driver_version: str | None = None


@dataclass(slots=True)
class _Test:
    name: str
    unit: str | None = None
    columns: int | None = None
    rows: list[tuple[float | None, ...]] = field(default_factory=list)
    total: float | None = None
    status: str | None = None

    def frozen(self) -> BandwidthTest:
        matrix = tuple(self.rows) if self.columns is not None else None
        rate = self.total if self.unit in (None, "GB/s") else None
        return BandwidthTest(self.name, matrix, rate, self.unit, self.status, self.total)


def parse_nvbandwidth(text: str) -> Nvbandwidth:
    """Read the output; raise ParseError for a cut row, or where no test is named."""
    lines = lines_of(text, NVBANDWIDTH_TOOL)
    document = find_document(
        text, NVBANDWIDTH_TOOL, lambda document: isinstance(document, dict) and "nvbandwidth" in document
    )
    return _from_json(document["nvbandwidth"], lines) if document is not None else _from_text(list(untagged(lines)))


def _from_text(lines: Sequence[Line]) -> Nvbandwidth:
    tests: list[_Test] = []
    facts: dict[str, str] = {}
    test: _Test | None = None
    for line in lines:
        content = line.text.strip()
        if match := _RUNNING.fullmatch(content):
            test = _Test(match[1])
            tests.append(test)
        elif match := _SUM.fullmatch(content):
            if test is not None and test.name == match[1]:
                test.total = _number(match[2], line)
        elif content.startswith("SUM ") or content == "Running":
            raise unreadable(NVBANDWIDTH_TOOL, line, "the line is cut")
        elif test is not None and content.rstrip(":.") == "Waived":
            # a waived test that was not announced prints the word alone
            if test.columns is None:
                test.status = "Waived"
        elif test is not None and content:
            _read_line(test, line, content)
        elif test is None and ": " in content:
            key, _, value = content.partition(": ")
            facts.setdefault(key.lower(), value.strip())
    if not tests:
        raise no_output(NVBANDWIDTH_TOOL, lines, "'Running <test>.'")
    return Nvbandwidth(
        tuple(test.frozen() for test in tests), facts.get("nvbandwidth version"), facts.get("driver version")
    )


def _read_line(test: _Test, line: Line, content: str) -> None:
    if match := _UNIT.search(content):
        test.unit, test.columns, test.rows = match[1], None, []
    elif test.unit is None:
        return
    elif test.columns is None:
        if _HEADER.fullmatch(content):
            test.columns = len(content.split())
    elif content[0].isdigit() and not is_noise(content):
        cells = content.split()[1:]
        if _ROW.fullmatch(content) is None or len(cells) != test.columns or test.total is not None:
            raise unreadable(
                NVBANDWIDTH_TOOL, line, f"{counted(len(cells), 'value')} under {counted(test.columns, 'column')}"
            )
        test.rows.append(tuple(_cell(cell, line) for cell in cells))


def _cell(cell: str, line: Line) -> float | None:
    return None if cell.upper() in ("N/A", "NAN", "-NAN") else _number(cell, line)


def _number(text: str, line: Line) -> float:
    if _NUMBER.fullmatch(text) is None:
        raise unreadable(NVBANDWIDTH_TOOL, line, f"{text[:40]!r} is no number")
    return float(text)


def _from_json(report: Any, lines: Sequence[Line]) -> Nvbandwidth:
    if not isinstance(report, dict):
        raise unreadable(NVBANDWIDTH_TOOL, lines[0], "'nvbandwidth' is no object")
    cases = report.get("testcases")
    if not isinstance(cases, list):
        error = report.get("error")
        why = f"it failed: {str(error)[:200]}" if error else "it names no testcases"
        raise unreadable(NVBANDWIDTH_TOOL, lines[0], why)
    version = report.get("git_version") or report.get("nvbandwidth version")
    driver = report.get("Driver Version")
    return Nvbandwidth(
        tuple(_case(case, lines[0]) for case in cases),
        None if version is None else str(version),
        None if driver is None else str(driver),
    )


def _case(case: Any, line: Line) -> BandwidthTest:
    if not isinstance(case, dict) or not isinstance(case.get("name"), str):
        raise unreadable(NVBANDWIDTH_TOOL, line, f"{str(case)[:80]!r} is no test case")
    description = str(case.get("bandwidth_description") or case.get("description") or "")
    unit = _UNIT.search(description)
    rows = case.get("bandwidth_matrix")
    if rows is not None and not (isinstance(rows, list) and all(isinstance(row, list) for row in rows)):
        raise unreadable(NVBANDWIDTH_TOOL, line, f"the matrix of {case['name']!r} is no list of rows")
    total = case.get("sum")
    matrix = None if rows is None else tuple(tuple(_cell(str(cell), line) for cell in row) for row in rows)
    named = unit[1] if unit else None
    value = None if total is None else _cell(str(total), line)
    return BandwidthTest(
        name=case["name"],
        matrix=matrix,
        sum_gb_s=value if named in (None, "GB/s") else None,
        unit=named,
        status=None if case.get("status") is None else str(case["status"]),
        sum=value,
    )


# Reads two of NVIDIA's CUDA samples: `bandwidthTest`, and the matrices of `p2pBandwidthLatencyTest`.

CUDA_SAMPLES_TOOL = "bandwidthtest"
P2P_TOOL = "p2p-bandwidth"
_DEVICE = re.compile(r"Device (?P<index>\d{1,4}): (?P<name>\S.*)")
_DIRECTION = re.compile(r"(?P<source>Host|Device) to (?P<target>Host|Device) Bandwidth, \d{1,4} Device\(s\).*")
_MEMORY = re.compile(r"(?P<memory>PINNED|PAGEABLE|WRITE-COMBINED PINNED) Memory Transfers")
_CUDA_SAMPLES_UNIT = re.compile(r"Transfer Size \(Bytes\)\s+Bandwidth\((?P<unit>GB/s|MB/s)\)")
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
    """Read the output; raise ParseError for a row that is cut, and where no copy was measured."""
    lines = list(untagged(lines_of(text, CUDA_SAMPLES_TOOL)))
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
        elif match := _CUDA_SAMPLES_UNIT.fullmatch(content):
            scale = 1 if match["unit"] == "GB/s" else 1000
        elif direction and scale and (match := _VALUE.fullmatch(content)):
            device = next(iter(devices), None)
            rates.append(CopyRate(device, direction, memory, int(match["size"]), float(match["value"]) / scale))
        elif match := _CSV.fullmatch(content):
            rates.append(_csv_rate(match, next(iter(devices), None)))
        elif content.startswith("bandwidthTest-") and "2" in content[:17]:
            raise unreadable(CUDA_SAMPLES_TOOL, line, "the line is cut")
        elif direction and scale and _BEGINS_AS_VALUE.match(content):
            raise unreadable(CUDA_SAMPLES_TOOL, line, "the row is cut")
        elif match := _RESULT.fullmatch(content):
            passed = match["result"] == "PASS"
    if not rates:
        raise no_output(CUDA_SAMPLES_TOOL, lines, "'Host to Device Bandwidth'")
    return Bandwidthtest(tuple(devices.values()), tuple(rates), passed)


def _csv_rate(match: re.Match[str], device: int | None) -> CopyRate:
    direction = f"{_PLACES[match['source']]} to {_PLACES[match['target']]}"
    gb_s = float(match["value"]) / (1 if match["unit"] == "GB/s" else 1000)
    return CopyRate(device, direction, (match["memory"] or "").lower(), int(match["size"]), gb_s)


def parse_p2p_bandwidth(text: str) -> P2pBandwidth:
    """Read the output; raise ParseError for a row of another width than its heading, and where there is no matrix."""
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
