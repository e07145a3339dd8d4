"""Reads the text of any nccl-tests program (`all_reduce_perf` …), of all ages, alone or under mpirun or srun."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from nodectl.errors import ParseError
from nodectl.facts.parsers.text import Line, foreign, lines_of, readable, real, unreadable, untagged, whole

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
    """A rank and its GPU; `bus` as printed, which old programs cut to `0x0f`."""

    rank: int
    host: str
    device: int
    name: str
    pid: int
    group: int | None
    bus: str


@dataclass(frozen=True, slots=True)
class NcclTests:
    """One run; `ok` is None if the output ends before its summary, `failures` are the lines that say why."""

    collective: str | None
    ranks: tuple[NcclTestsRank, ...]
    rows: tuple[NcclTestsRow, ...]
    out_of_bounds: int | None
    average_busbw_gb_s: float | None
    ok: bool | None
    failures: tuple[str, ...]
    unavailable: Mapping[str, str]


def parse_nccl_tests(text: str) -> NcclTests:
    """Read the output; raise ParseError if there is no output of such a test, or a row is cut."""
    lines = lines_of(text, TOOL)
    run = _Run()
    for line in untagged(lines):
        run.read(Line(line.number, _LABEL.sub("", line.text, count=1)) if ": " in line.text[:12] else line)
    if not (run.ranks or run.rows or run.columns or run.began or run.verdicts):
        if run.failures:
            raise ParseError(f"{TOOL}: the test failed before it began: {run.failures[0]}")
        if reason := next((line.text.strip() for line in readable(lines) if _REASON.search(line.text)), ""):
            raise ParseError(f"{TOOL}: it did not run: {reason[:200]}")
        raise foreign(TOOL, lines, "no output of an nccl-tests program")
    wrong = any(side and side.wrong for row in run.rows for side in (row.out_of_place, row.in_place))
    failed = bool(run.failures) or wrong or not all(run.verdicts)
    return NcclTests(
        collective=run.collective,
        ranks=tuple(run.ranks),
        rows=tuple(run.rows),
        out_of_bounds=run.bounds,
        average_busbw_gb_s=run.average,
        ok=False if failed else None if run.bounds is None else True,
        failures=tuple(run.failures),
        unavailable=run.unavailable,
    )


class _Run:
    def __init__(self) -> None:
        self.collective: str | None = None
        self.ranks: dict[NcclTestsRank, None] = {}
        self.rows: list[NcclTestsRow] = []
        self.columns: tuple[str, ...] | None = None
        self.sides: tuple[str, ...] = ()
        self.bounds: int | None = None
        self.average: float | None = None
        self.verdicts: list[bool] = []
        self.failures: list[str] = []
        self.unavailable: dict[str, str] = {}
        self.began = False

    def read(self, line: Line) -> None:
        text = line.text.strip()
        if _is_row(text, in_table=self.columns is not None and not self.verdicts):
            self.rows.append(_row_of(line, self.columns, self.sides))
            return
        if not text:
            return
        columns = _columns_of(text)
        if columns is not None:
            self.columns = columns
        elif sides := _sides_of(text):
            self.sides = sides
        elif "Rank" in text and _BEGINS_AS_RANK.match(text):
            match = _RANK.match(text)
            if match is None:
                raise unreadable(TOOL, line, "a rank without its host, device and name")
            numbers = {name: int(match[name]) for name in ("rank", "device", "pid")}
            group, name = whole(match["group"] or ""), match["name"].strip()
            self.ranks[NcclTestsRank(host=match["host"], name=name, group=group, bus=match["bus"], **numbers)] = None
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


_TYPE = re.compile(r"u?int(?:8|32|64)|half|float|double|bfloat16|(?:f8|fp8)\w{0,8}|float8\w{0,8}|char|bf16|fp16|fp32")
_SIDE = ("time", "algbw", "busbw")
_SIDES = ("out-of-place", "in-place")
_OF_A_SIDE = (*_SIDE, "#wrong", "wrong", "error")
_KEYS = {"time": "time_us", "algbw": "algbw_gb_s", "busbw": "busbw_gb_s", "#wrong": "wrong", "wrong": "wrong"}
_SPREAD = re.compile(r"i_")  # over iterations, in programs of 2026
_TIMESTAMP = re.compile(r"\b(\d{4}-\d\d-\d\d) (\d\d:\d\d:\d\d)\s*$")
_STAMP = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d")
_NO_VALUE = re.compile(r"N/A|-?nan(?:\(\w{0,8}\))?|[+-]?inf", re.IGNORECASE)
_DIGITS = re.compile(r"\d{1,18}")
_LONGEST_ROW = 2000


@dataclass(frozen=True, slots=True)
class NcclTestsSide:
    """One of the two measurements of a row; `wrong` is None if the program prints an error instead, as before 2022."""

    time_us: float | None
    algbw_gb_s: float | None
    busbw_gb_s: float | None
    wrong: int | None
    unavailable: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class NcclTestsRow:
    """One size; `redop` and `root` are None if the program prints none."""

    size_bytes: int
    count: int
    type: str
    redop: str | None
    root: int | None
    out_of_place: NcclTestsSide | None
    in_place: NcclTestsSide | None


def _columns_of(text: str) -> tuple[str, ...] | None:
    if "algbw" not in text or "size" not in text:
        return None
    names = tuple(text.lstrip("# ").split())
    names = tuple("time" if name == "cputime" else name for name in names)
    return names if names[:1] == ("size",) and "time" in names else None


def _sides_of(text: str) -> tuple[str, ...]:
    labels = text.lstrip("# ").split()
    return tuple(labels) if labels and set(labels) <= set(_SIDES) and len(labels) <= len(_SIDES) else ()


def _is_row(text: str, *, in_table: bool) -> bool:
    if not text[:1].isdigit() or len(text) > _LONGEST_ROW:
        return False
    cells = text.split()
    if len(cells) > 2 and _TYPE.fullmatch(cells[2]):
        return True
    numbers = sum(real(word) is not None for word in cells)
    return in_table and cells[0].isdigit() and (numbers == len(cells) or numbers >= 5)


def _row_of(line: Line, columns: tuple[str, ...] | None, order: tuple[str, ...] = _SIDES) -> NcclTestsRow:
    # an asterisk marks an error beyond the threshold
    cells = [word for cell in _TIMESTAMP.sub(r"\1T\2", line.text).split() if (word := cell.rstrip("*"))]
    side, trailing = _side_columns(columns)
    sides = 2 if columns is None or columns.count("time") == 2 else 1
    if len(cells) < 3 + sides * len(side) + len(trailing):
        raise unreadable(TOOL, line, "a row that is cut")
    cells, behind = cells[: len(cells) - len(trailing)], cells[len(cells) - len(trailing) :]
    for name, cell in zip(trailing, behind, strict=True):
        form = _STAMP if name == "timestamp" else _DIGITS if name.startswith("#") else None
        if form and not form.fullmatch(cell):  # all cells are shifted
            raise unreadable(TOOL, line, f"{cell[:40]!r} is no {name}: the row is cut")
    head, tail = cells[: len(cells) - sides * len(side)], cells[len(cells) - sides * len(side) :]
    size, count, kind, operation, root = _head(line, head, has_root="root" in (columns or ()))
    measured = [_side(line, tail[i * len(side) : (i + 1) * len(side)], side) for i in range(sides)]
    named = dict(zip(order if len(order) == sides else _SIDES, measured, strict=False))
    return NcclTestsRow(size, count, kind, operation, root, *(named.get(name) for name in _SIDES))


def _side_columns(columns: tuple[str, ...] | None) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the columns of one side, and those that follow both sides: what the header names once for the row."""
    if columns is None:
        return (*_SIDE, "#wrong"), ()
    first = columns.index("time")
    rest = columns[first + 1 :]
    if "time" in rest:
        size = 1 + rest.index("time")
    else:
        size = 1 + max((at for at, name in enumerate(rest, 1) if name in _OF_A_SIDE or _SPREAD.match(name)), default=0)
    sides = columns.count("time")
    return columns[first : first + size], columns[first + sides * size :]


def _head(line: Line, head: list[str], *, has_root: bool) -> tuple[int, int, str, str | None, int | None]:
    numbers = [whole(word) for word in head[:2]]
    if len(head) > 5 or len(head) < 3 or numbers[0] is None or numbers[1] is None or not _TYPE.fullmatch(head[2]):
        raise unreadable(TOOL, line, "a row without size, count and type")
    if has_root and whole(head[-1]) is None:
        raise unreadable(TOOL, line, "a row without its root, or cut")
    operation, root = None, None
    for word in head[3:]:
        if whole(word) is not None and root is None:
            root = whole(word)
        elif operation is None and re.fullmatch(r"[A-Za-z]\w{0,24}", word):
            operation = word
        else:
            raise unreadable(TOOL, line, f"{word[:40]!r} is neither an operation nor a root")
    return numbers[0], numbers[1], head[2], operation, root


def _side(line: Line, cells: list[str], names: tuple[str, ...]) -> NcclTestsSide:
    values: dict[str, float | None] = {}
    unavailable: dict[str, str] = {}
    for name, cell in zip(names, cells, strict=True):
        if name not in _KEYS:
            continue
        key = _KEYS[name]
        value = values[key] = real(cell)
        if value is None or value < 0:
            if name == "time" or value is not None or not _NO_VALUE.fullmatch(cell):
                raise unreadable(TOOL, line, f"{cell[:40]!r} is no value of {name}")
            unavailable[key] = cell
    if not values.get("time_us") and values.get("algbw_gb_s"):
        raise unreadable(TOOL, line, "a bandwidth in no time: a column is missing")
    wrong = values.get("wrong")
    return NcclTestsSide(
        time_us=values.get("time_us"),
        algbw_gb_s=values.get("algbw_gb_s"),
        busbw_gb_s=values.get("busbw_gb_s"),
        wrong=int(wrong) if wrong is not None and wrong.is_integer() else None,
        unavailable=unavailable,
    )
