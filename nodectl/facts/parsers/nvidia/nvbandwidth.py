"""Reads the text of `nvbandwidth`."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from nodectl.common.counting import counted
from nodectl.facts.parsers.nvidia.words import is_noise, no_output
from nodectl.facts.parsers.text import Line, lines_of, unreadable, untagged

TOOL = "nvbandwidth"
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
    """Read the output; raise ParseError for a cut row, or if no test is named."""
    lines = list(untagged(lines_of(text, TOOL)))
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
            raise unreadable(TOOL, line, "the line is cut")
        elif test is not None and test.columns is None and content.rstrip(":.") == "Waived":
            test.status = "Waived"
        elif test is not None and content:
            _read_line(test, line, content)
        elif test is None and ": " in content:
            key, _, value = content.partition(": ")
            facts.setdefault(key.lower(), value.strip())
    if not tests:
        raise no_output(TOOL, lines, "'Running <test>.'")
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
            raise unreadable(TOOL, line, f"{counted(len(cells), 'value')} under {counted(test.columns, 'column')}")
        none = ("N/A", "NAN", "-NAN")
        test.rows.append(tuple(None if cell.upper() in none else _number(cell, line) for cell in cells))


def _number(text: str, line: Line) -> float:
    if _NUMBER.fullmatch(text) is None:
        raise unreadable(TOOL, line, f"{text[:40]!r} is no number")
    return float(text)
