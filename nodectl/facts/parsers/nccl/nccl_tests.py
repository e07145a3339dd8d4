"""Reads the text of any nccl-tests program (`all_reduce_perf` …), of all ages, alone or under mpirun or srun."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from nodectl.errors import ParseError
from nodectl.facts.parsers.json_values import find_document, number, objects, section, text_of
from nodectl.facts.parsers.json_values import whole as whole_of
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
    if _DOCUMENT.search(text) and (run_of_document := _run_of_json(text)) is not None:
        return run_of_document
    run = _Run()
    for line in _unlabelled(lines):
        run.read(line)
    run.torn.require_none()
    if not (run.ranks or run.rows or run.columns or run.began or run.verdicts):
        raise _refusal(run, lines)
    return run.result()


# the file that `-J` writes, in any order of its keys
_DOCUMENT = re.compile(r'"(?:results|out_of_bounds)"\s{0,20}:')


class _Run:
    """The state of reading."""

    def __init__(self) -> None:
        self.collective: str | None = None
        self.ranks: dict[NcclTestsRank, None] = {}
        self.rows: list[NcclTestsRow] = []
        self.columns: tuple[str, ...] | None = None
        self.sides: tuple[str, ...] = ()
        self.torn = _TornRow()
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
    return foreign(TOOL, lines, "no output of an nccl-tests program")


_TYPE = re.compile(r"u?int(?:8|32|64)|half|float|double|bfloat16|(?:f8|fp8)\w{0,8}|float8\w{0,8}|char|bf16|fp16|fp32")
_SIDE = ("time", "algbw", "busbw")
_SIDES = ("out-of-place", "in-place")
_JUDGED = ("#wrong", "wrong", "error")
_OF_A_SIDE = (*_SIDE, *_JUDGED)
_SPREAD = re.compile(r"i_")  # over iterations, in programs of 2026
_TIMESTAMP = re.compile(r"\b(\d{4}-\d\d-\d\d) (\d\d:\d\d:\d\d)\s*$")
_STAMP = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d")
_NO_VALUE = re.compile(r"N/A|-?nan(?:\(\w{0,8}\))?|[+-]?inf", re.IGNORECASE)
_DIGITS = re.compile(r"\d{1,18}")
_LONGEST_ROW = 2000


@dataclass(frozen=True, slots=True)
class NcclTestsSide:
    """One of the two measurements of a row; `max_error` is what programs before 2022 print instead of `wrong`."""

    time_us: float | None
    algbw_gb_s: float | None
    busbw_gb_s: float | None
    wrong: int | None
    max_error: float | None
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
    """Return the names in the table's header; None for every other line."""
    if "algbw" not in text or "size" not in text:
        return None
    names = tuple(text.lstrip("# ").split())
    names = tuple("time" if name == "cputime" else name for name in names)
    return names if names[:1] == ("size",) and "time" in names else None


def _sides_of(text: str) -> tuple[str, ...]:
    """Return what the line above the header names, in its order; empty for every other line."""
    labels = text.lstrip("# ").split()
    return tuple(labels) if labels and set(labels) <= set(_SIDES) and len(labels) <= len(_SIDES) else ()


def _is_row(text: str, *, in_table: bool) -> bool:
    """Return whether it begins as a row does: what follows must then be one."""
    if not text[:1].isdigit() or len(text) > _LONGEST_ROW:
        return False
    cells = text.split()
    if len(cells) > 2 and _TYPE.fullmatch(cells[2]):
        return True
    numbers = sum(real(word) is not None for word in cells)
    return in_table and cells[0].isdigit() and (numbers == len(cells) or numbers >= 5)


def _row_of(line: Line, columns: tuple[str, ...] | None, order: tuple[str, ...] = _SIDES) -> NcclTestsRow:
    """Read a row; raise ParseError if a column is missing or no value; `order` is what `_sides_of` returned."""
    # an asterisk marks an error beyond the threshold
    cells = [word for cell in _TIMESTAMP.sub(r"\1T\2", line.text).split() if (word := cell.rstrip("*"))]
    side, trailing = _side_columns(columns)
    sides = 2 if columns is None or columns.count("time") == 2 else 1
    if len(cells) < 3 + sides * len(side) + len(trailing):
        raise unreadable(TOOL, line, "a row that is cut")
    cells, behind = cells[: len(cells) - len(trailing)], cells[len(cells) - len(trailing) :]
    _require_trailing(line, trailing, behind)
    head, tail = cells[: len(cells) - sides * len(side)], cells[len(cells) - sides * len(side) :]
    size, count, kind, operation, root = _head(line, head, has_root="root" in (columns or ()))
    judged = _judged(columns, side, tail)
    measured = [_side(line, tail[i * len(side) : (i + 1) * len(side)], side, judged) for i in range(sides)]
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


def _require_trailing(line: Line, names: tuple[str, ...], cells: list[str]) -> None:
    """Raise ParseError if a word cannot be its column's value: the row is then cut, and all cells are shifted."""
    for name, cell in zip(names, cells, strict=True):
        if name == "timestamp" and not _STAMP.fullmatch(cell):
            raise unreadable(TOOL, line, f"{cell[:40]!r} is no timestamp: the row is cut")
        if name.startswith("#") and not _DIGITS.fullmatch(cell):
            raise unreadable(TOOL, line, f"{cell[:40]!r} is no count of {name}: the row is cut")


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


def _judged(columns: tuple[str, ...] | None, side: tuple[str, ...], tail: list[str]) -> str:
    """Return max_error or wrong, as the last column gives one or the other; without a header, by how it looks."""
    if columns is not None:
        return "max_error" if "error" in side else "wrong"
    looks = [word for word in (tail[3], tail[7]) if not _NO_VALUE.fullmatch(word)]
    return "max_error" if any(not _DIGITS.fullmatch(word) for word in looks) else "wrong"


def _side(line: Line, cells: list[str], names: tuple[str, ...], judged: str) -> NcclTestsSide:
    keys = {"time": "time_us", "algbw": "algbw_gb_s", "busbw": "busbw_gb_s"}
    values: dict[str, float | None] = {}
    unavailable: dict[str, str] = {}
    for name, cell in zip(names, cells, strict=True):
        key = judged if name in _JUDGED else keys.get(name)
        if key is None:
            continue
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
        wrong=None if wrong is None else int(wrong),
        max_error=values.get("max_error"),
        unavailable=unavailable,
    )


_LOG = r"[\w.-]{1,255}:\d{1,10}:\d{1,10} \[-?\d{1,5}\] (?:\S{1,80} )?NCCL (?:INFO|WARN|TRACE|ABORT)\b"
_HEAD = re.compile(
    rf"\s*(?P<head>\d{{1,18}}\s+\d{{1,18}}\s+[a-z]\w{{1,20}}(?:\s+[a-z]\w{{0,24}})?(?:\s+(?:-1|\d{{1,9}}))?)\s*{_LOG}"
)
_VALUE = r"(?:\d[\d.e+-]{0,20}|N/A|-?nan|-?inf)"
_END = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d"
_PART = re.compile(
    rf"\s*(?P<part>(?:{_VALUE}(?:\s+{_VALUE}){{0,15}}(?:\s+(?P<stamp>{_END}))?|(?P<late>{_END})))\s*(?:{_LOG}.*)?"
)
_HEADLESS_COLUMNS = 8
_HEAD_COLUMNS = ("size", "count", "type", "redop", "root")


class _TornRow:
    """Holds the part of a row that was printed, until the rest of it comes."""

    def __init__(self) -> None:
        self._line: Line | None = None
        self._parts: list[str] = []
        self._missing = 0

    def read(self, line: Line, columns: tuple[str, ...] | None) -> Line | None:
        """Return the line itself.

        None for a part of a torn row, and for its last part the row under its first number.
        """
        if "NCCL" in line.text and (head := _HEAD.match(line.text)):
            self.require_none()
            self._line, self._parts = line, [head["head"]]
            self._missing = _HEADLESS_COLUMNS if columns is None else sum(name not in _HEAD_COLUMNS for name in columns)
            return None
        if self._line is not None and (part := _PART.fullmatch(line.text)):
            self._parts.append(part["part"])
            self._missing -= len(part["part"].split()) - bool(part["stamp"] or part["late"])
            if self._missing <= 0:
                line, self._line = Line(self._line.number, " ".join(self._parts)), None
                return line
            return None
        return line

    def require_none(self) -> None:
        """Raise ParseError if a row was begun and its rest did not come."""
        if self._line is not None:
            raise unreadable(TOOL, self._line, "a row that a log line cut off")


# the program writes a number that is none as this text
_NO_NUMBER = "nan"


def _run_of_json(text: str) -> NcclTests | None:
    """Return the run; None if the text holds no such document, ParseError if a value has another type."""
    document = find_document(text, TOOL, _is_run)
    return None if document is None else _json_run(document)


def _is_run(document: Any) -> bool:
    return isinstance(document, dict) and isinstance(document.get("results"), list) and "config" in document


def _json_run(document: Mapping[str, Any]) -> NcclTests:
    bounds, average = section(document, "out_of_bounds", TOOL), section(document, "average_bus_bandwidth", TOOL)
    rows = tuple(_json_row(result) for result in objects(document, "results", TOOL))
    unavailable: dict[str, str] = {}
    failures = tuple(str(error) for error in document.get("errors") or () if error and not _is_no_error(str(error)))
    out_of_bounds = whole_of(bounds, "count", TOOL)
    return NcclTests(
        collective=_json_collective(document),
        ranks=tuple(_json_rank(device) for device in objects(section(document, "config", TOOL), "devices", TOOL)),
        rows=rows,
        out_of_bounds=out_of_bounds,
        average_busbw_gb_s=_json_value(average, "bandwidth", "average_busbw_gb_s", unavailable),
        ok=_json_ok(rows, failures, out_of_bounds, (bounds.get("okay"), average.get("okay"))),
        failures=failures,
        unavailable=unavailable,
    )


def _is_no_error(text: str) -> bool:
    return text.strip().lower() in ("", "no error")


def _json_ok(
    rows: tuple[NcclTestsRow, ...], failures: tuple[str, ...], bounds: int | None, verdicts: tuple[Any, ...]
) -> bool | None:
    """Return the run's verdict; None if the file ends before its summary."""
    wrong = any(side.wrong for row in rows for side in (row.out_of_place, row.in_place) if side is not None)
    if failures or wrong or bounds or "false" in verdicts or False in verdicts:
        return False
    return None if bounds is None else True


def _json_collective(document: Mapping[str, Any]) -> str | None:
    arguments = document.get("args")
    program = str(arguments[0]) if isinstance(arguments, list) and arguments else ""
    match = _COLLECTIVE.search(program)
    return match[1] if match else None


def _json_rank(device: Mapping[str, Any]) -> NcclTestsRank:
    rank, pid, ordinal = (whole_of(device, key, TOOL) for key in ("rank", "pid", "device"))
    host, name, bus = (text_of(device, key, TOOL) for key in ("hostname", "device_info", "device_hex"))
    if rank is None or pid is None or ordinal is None or host is None or name is None:
        raise ParseError(f"{TOOL}: a device without its rank, host or name: {str(device)[:200]!r}")
    return NcclTestsRank(rank, host, ordinal, name.strip(), pid, whole_of(device, "group", TOOL), bus or "")


def _json_row(result: Mapping[str, Any]) -> NcclTestsRow:
    size, count, kind = whole_of(result, "size", TOOL), whole_of(result, "count", TOOL), text_of(result, "type", TOOL)
    if size is None or count is None or kind is None:
        raise ParseError(f"{TOOL}: a result without size, count or type: {str(result)[:200]!r}")
    root = str(result.get("root", "")).strip()
    return NcclTestsRow(
        size_bytes=size,
        count=count,
        type=kind,
        redop=text_of(result, "redop", TOOL),
        root=int(root) if root.lstrip("-").isdigit() and len(root) < 10 else None,
        out_of_place=_json_side(result, "out_of_place"),
        in_place=_json_side(result, "in_place"),
    )


def _json_side(result: Mapping[str, Any], key: str) -> NcclTestsSide | None:
    """Return the measurements of that way; None if it was not measured, as in a replay."""
    if result.get(key) is None:
        return None
    measured = section(result, key, TOOL)
    unavailable: dict[str, str] = {}
    time = "time" if "time" in measured else "cpu_time"
    if time not in measured or not {"alg_bw", "bus_bw"} <= measured.keys():
        raise ParseError(f"{TOOL}: {key!r} without its time or bandwidth: {str(measured)[:200]!r}")
    wrong = _json_value(measured, "nwrong", "wrong", unavailable)
    return NcclTestsSide(
        time_us=_json_value(measured, time, "time_us", unavailable),
        algbw_gb_s=_json_value(measured, "alg_bw", "algbw_gb_s", unavailable),
        busbw_gb_s=_json_value(measured, "bus_bw", "busbw_gb_s", unavailable),
        wrong=None if wrong is None else int(wrong),
        max_error=None,
        unavailable=unavailable,
    )


def _json_value(part: Mapping[str, Any], key: str, name: str, unavailable: dict[str, str]) -> float | None:
    if part.get(key) == _NO_NUMBER:
        unavailable[name] = _NO_NUMBER
        return None
    return number(part, key, TOOL)
