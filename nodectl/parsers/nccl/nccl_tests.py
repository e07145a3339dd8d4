"""Reads the text of any nccl-tests program (`all_reduce_perf` …), of all ages, alone or under mpirun or srun."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from nodectl.errors import ParseError
from nodectl.parsers.nccl.nccl_tests_rows import NcclTestsRow, columns_of, is_row, row_of, sides_of
from nodectl.parsers.nccl.nccl_tests_torn import TornRow
from nodectl.parsers.numbers import real, whole
from nodectl.parsers.text import Line, lines_of, readable, unreadable, untagged

TOOL = "nccl-tests"
_LABEL = re.compile(r"^\s{0,4}\d{1,6}: ")  # srun -l
_COLLECTIVE = re.compile(
    r"(?<![\w-])(all_reduce|all_gather|alltoallv?|broadcast|gather|hypercube|reduce_scatter|reduce|scatter|sendrecv)_perf\b"
)
_RANK = re.compile(
    r"#?\s*Rank\s+(?P<rank>\d{1,9})(?:\s+Group\s+(?P<group>\d{1,9}))?\s+Pid\s+(?P<pid>\d{1,10})\s+on\s+(?P<host>\S{1,255})"
    r"\s+device\s+(?P<device>\d{1,4})\s+\[(?P<bus>[0-9a-fA-Fx:.]{1,20})\]\s+(?P<name>\S.*)"
)
_BEGINS_AS_RANK = re.compile(r"#?\s*Rank\s+\d{1,9}\s+(?:Group|Pid)\b")
_BOUNDS = re.compile(r"#?\s*Out of bounds values\s*:\s*(?P<count>\d{1,18})\s+(?P<verdict>OK|FAILED)\b")
_AVERAGE = re.compile(r"#?\s*Avg bus bandwidth\s*:\s*(?P<value>\S+)(?:\s+(?P<verdict>OK|FAILED))?\s*$")
_BEGINS_AS_SUMMARY = re.compile(r"#?\s*(?:Out of bounds values|Avg bus bandwidth)\b")
_FAILURE = re.compile(
    r"\bTest (?:CUDA |NCCL )?failure\b|\bTest timeout\b|\b(?:NCCL|Cuda) failure \S{1,80}:\d"
    r"|\bexited on signal \d|\breturned a non-zero exit code\b|\bExited with exit code [1-9]|\bSegmentation fault\b"
)
_OPTIONS = re.compile(r"#?\s*nThread\s+\d|#?\s*nccl-tests version|#?\s*Using devices|#?\s*Collective test ")
_REASON = re.compile(
    r"command not found|No such file or directory|error while loading shared libraries|Invalid number of GPUs"
    r"|invalid option|not enough slots|mpirun was unable|srun: error|[Pp]ermission denied"
)


@dataclass(frozen=True, slots=True)
class NcclTestsRank:
    """Which GPU a rank ran on; `bus` as printed, which old programs cut to `0x0f`."""

    rank: int
    host: str
    device: int
    name: str
    pid: int
    group: int | None
    bus: str


@dataclass(frozen=True, slots=True)
class NcclTests:
    """One run; `ok` is None where the output ends before its summary, `failures` are the lines that say why."""

    collective: str | None
    ranks: tuple[NcclTestsRank, ...]
    rows: tuple[NcclTestsRow, ...]
    out_of_bounds: int | None
    average_busbw_gb_s: float | None
    ok: bool | None
    failures: tuple[str, ...]
    unavailable: Mapping[str, str]


def parse_nccl_tests(text: str) -> NcclTests:
    """ParseError where there is no output of such a test, or a row is cut."""
    lines = lines_of(text, TOOL)
    run = _Run()
    for line in _unlabelled(lines):
        run.read(line)
    run.torn.require_none()
    if not (run.ranks or run.rows or run.columns or run.began or run.verdicts):
        raise _refusal(run, lines)
    return run.result()


class _Run:
    """What was read so far."""

    def __init__(self) -> None:
        self.collective: str | None = None
        self.ranks: dict[NcclTestsRank, None] = {}
        self.rows: list[NcclTestsRow] = []
        self.columns: tuple[str, ...] | None = None
        self.sides: tuple[str, ...] = ()
        self.torn = TornRow(TOOL)
        self.bounds: int | None = None
        self.average: float | None = None
        self.verdicts: list[bool] = []
        self.failures: list[str] = []
        self.unavailable: dict[str, str] = {}
        self.began = False

    def read(self, line: Line) -> None:
        untorn = self.torn.read(line, self.columns)
        if untorn is None:
            return
        line, text = untorn, untorn.text.strip()
        if is_row(text, in_table=self.columns is not None and not self.verdicts):
            self.rows.append(row_of(TOOL, line, self.columns, self.sides))
            return
        if not text:
            return
        columns = columns_of(text)
        if columns is not None:
            self.columns = columns
        elif sides := sides_of(text):
            self.sides = sides
        elif "Rank" in text and _BEGINS_AS_RANK.match(text):
            self.ranks[_rank(line)] = None
        elif _BEGINS_AS_SUMMARY.match(text):
            self._summary(line)
        elif _FAILURE.search(text) and "NCCL WARN" not in text:
            self.failures.append(text[:400])
        elif _OPTIONS.match(text):
            self.began = True
        if self.collective is None and (named := _COLLECTIVE.search(text)):
            self.collective = named[1]

    def _summary(self, line: Line) -> None:
        text = line.text.strip()
        if bounds := _BOUNDS.match(text):
            self.bounds = (self.bounds or 0) + int(bounds["count"])
            self.verdicts.append(bounds["verdict"] == "OK")
        elif average := _AVERAGE.match(text):
            self.average = real(average["value"])
            if self.average is None:
                if not re.fullmatch(r"-?(?:nan|inf)|N/A", average["value"], re.IGNORECASE):
                    raise unreadable(TOOL, line, "no bandwidth")
                self.unavailable["average_busbw_gb_s"] = average["value"]
            if average["verdict"]:
                self.verdicts.append(average["verdict"] == "OK")
        else:
            raise unreadable(TOOL, line, "a summary that is cut")

    def result(self) -> NcclTests:
        return NcclTests(
            collective=self.collective,
            ranks=tuple(self.ranks),
            rows=tuple(self.rows),
            out_of_bounds=self.bounds,
            average_busbw_gb_s=self.average,
            ok=self._ok(),
            failures=tuple(self.failures),
            unavailable=self.unavailable,
        )

    def _ok(self) -> bool | None:
        wrong = any(side.wrong for row in self.rows for side in (row.out_of_place, row.in_place) if side is not None)
        if self.failures or wrong or not all(self.verdicts):
            return False
        return True if self.bounds is not None else None


def _unlabelled(lines: list[Line]) -> Iterator[Line]:
    for line in untagged(lines):
        yield Line(line.number, _LABEL.sub("", line.text, count=1)) if ": " in line.text[:12] else line


def _rank(line: Line) -> NcclTestsRank:
    match = _RANK.match(line.text.strip())
    if match is None:
        raise unreadable(TOOL, line, "a rank without its host, device and name")
    return NcclTestsRank(
        rank=int(match["rank"]),
        host=match["host"],
        device=int(match["device"]),
        name=match["name"].strip(),
        pid=int(match["pid"]),
        group=whole(match["group"] or ""),
        bus=match["bus"],
    )


def _refusal(run: _Run, lines: list[Line]) -> ParseError:
    if run.failures:
        return ParseError(f"{TOOL}: the test failed before it began: {run.failures[0]}")
    for line in readable(lines):
        if _REASON.search(line.text):
            return ParseError(f"{TOOL}: it did not run: {line.text.strip()[:200]}")
    first = next(line for line in lines if line.text.strip())
    return unreadable(TOOL, first, "no output of an nccl-tests program")
