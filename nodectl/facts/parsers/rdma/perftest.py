"""Reads what perftest's programs (`ib_write_bw`, `ib_send_lat`, …) print, as client or server."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from nodectl.common.resources import table
from nodectl.common.units import MIB
from nodectl.errors import ParseError
from nodectl.facts.parsers.rdma.labelled import rows_of
from nodectl.facts.parsers.text import Line, foreign, unreadable

TOOL = "perftest"
_BANNER = re.compile(r"(RDMA_Write|RDMA_Read|Send|Atomic)([\w -]{0,60}?)[ _](BW|Latency)[ _]Test\b")
_PROGRAM = re.compile(r"\bib_(?:write|read|send|atomic)_(?:bw|lat)\b")
_WAITS = re.compile(r"Waiting for client (?:rdma_cm QP )?to connect")
# what `timeout` and a shell leave behind
_DEADLINE = re.compile(r"exit status: 124\b|^\s*Terminated\b")
_VERBS = {"RDMA_Write": "write", "RDMA_Read": "read", "Send": "send", "Atomic": "atomic"}


@dataclass(frozen=True, slots=True)
class Perftest:
    """One run; None for what was not printed. `rows` may be empty if the output was cut or the run failed."""

    test: str | None
    rows: tuple[Row, ...]
    error: PerftestError | None


def parse_perftest(text: str) -> Perftest:
    """Read the output; raise ParseError for a row that is cut or garbled, and for text that is no run of perftest's."""
    lines = list(rows_of(text, TOOL))
    table, banners, complaints, has_begun = _Table(), list[re.Match[str]](), list[Line](), False
    for line in lines:
        if rest := table.read(line):
            banners += filter(None, [_BANNER.search(rest)])
            has_begun = has_begun or _WAITS.search(rest) is not None
            complaints += [Line(line.number, rest)] if _is_error(rest) else []
    rows = tuple(table.rows)
    named = (_PROGRAM.search(line.text) for line in lines)
    test = next((match[0] for match in named if match), None)
    if banners:
        verb, _, kind = banners[0].groups()
        test = f"ib_{_VERBS[verb]}_{'bw' if kind == 'BW' else 'lat'}"
    error = _find_error(complaints, has_figures=bool(rows))
    deadline = next((line.text.strip() for line in lines if _DEADLINE.search(line.text)), None)
    # a cut link shows as zero iterations only, a deadline as no output at all
    if error is None and any(row.iterations == 0 for row in rows):
        error = PerftestError("peer_lost", table.idle or "0 iterations")
    elif error is None and deadline and not rows and test:
        error = PerftestError("timeout", deadline)
    if not (rows or error or banners or has_begun):
        raise _no_run(lines)
    # a server and its client in one output show the same figures twice
    return Perftest(test, tuple(dict.fromkeys(rows)) if len(banners) > 1 else rows, error)


def _no_run(lines: Sequence[Line]) -> ParseError:
    why = "no run of perftest"
    if any(line.text.strip().startswith("Usage:") for line in lines):
        why = "the program's help, not a run"
    elif any(re.fullmatch(r"\s*\d+\.\d+\s*", line.text) for line in lines):
        why = "a figure without its size and unit: run without --output"
    return foreign(TOOL, lines, why)


_HEADER = re.compile(r"\s*#bytes\b")
_PREFIXED_HEADER = re.compile(r".*\S\s*#bytes\s+#(?:iterations|sl)\b")
_COLUMN = re.compile(
    r"#(?P<id>bytes|sl|iterations)\b|BW (?P<bw>peak|average)\[(?P<bw_unit>[^\]]*)\]|(?P<rate>MsgRate)\[Mpps\]"
    r"|(?P<t>t_\w+)\[(?P<t_unit>[^\]]*)\]|(?P<percent>99(?:\.9)?)% percentile\[(?P<p_unit>[^\]]*)\]"
    r"|(?P<tps>tps average)"
    r"|[A-Za-z][\w%. ]{0,30}\[[^\]]{0,20}\]"  # of no use here, but it has its place
)
_ROW = re.compile(r"\s*\d{1,20}(?=\s+\d|\s*$)")
_VALUE = r"-?\d{1,20}(?:\.\d{1,20})?|-?nan|-?inf"
_CELL = re.compile(rf"(?:^|\s)\s*({_VALUE})")
# latencies have two decimals; pasted columns may have lost the blanks between them
_LATENCY_CELL = re.compile(rf"\s*(\d{{1,20}}\.\d\d(?=\d+\.)|{_VALUE})")
_MIB_BITS = MIB * 8
# perftest's MB is 2^20 bytes; since version 24 it says so
_GBIT_S = {"Gb/sec": 1.0, "MB/sec": _MIB_BITS / 1e9, "MiB/sec": _MIB_BITS / 1e9}


@dataclass(frozen=True, slots=True)
class BwRow:
    """Throughput at one size; the peak is None if it was not measured, the rate if it is not printed."""

    size_bytes: int
    iterations: int
    peak_gbit_s: float | None
    average_gbit_s: float | None
    message_rate_mpps: float | None


@dataclass(frozen=True, slots=True)
class LatRow:
    """Latency at one size; a run by duration gives the average only."""

    size_bytes: int
    iterations: int
    min_us: float | None
    max_us: float | None
    typical_us: float | None
    average_us: float | None
    p99_us: float | None
    p999_us: float | None


Row = BwRow | LatRow
_LATENCIES = ("t_min", "t_max", "t_typical", "t_avg", "99", "99.9")
_COUNTS = ("bytes", "sl", "iterations")


def _row_of(values: Mapping[str, float | None], gbit_s: float) -> Row:
    size, iterations = int(values["bytes"] or 0), int(values["iterations"] or 0)
    if "average" not in values:
        return LatRow(size, iterations, *(values.get(name) for name in _LATENCIES))
    peak, average = values.get("peak"), values["average"]
    return BwRow(
        size_bytes=size,
        iterations=iterations,
        peak_gbit_s=peak * gbit_s if peak else None,
        average_gbit_s=None if average is None else average * gbit_s,
        message_rate_mpps=values.get("rate"),
    )


class _Table:
    """Collects the rows below the header last seen; `idle` is a row of a run that moved nothing."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.idle: str | None = None
        self._columns: list[str] = []
        self._gbit_s = 0.0
        self._has_more_columns = False

    def read(self, line: Line) -> str | None:
        """Return None for a header or a row, else the text that is neither: the line, or what follows a row's end."""
        if _HEADER.match(line.text):
            self._head(line)
            return None
        if "#bytes" in line.text and _PREFIXED_HEADER.match(line.text):
            raise unreadable(TOOL, line, "something stands before the table's header")
        if not self._columns or not _ROW.match(line.text):
            return line.text
        return self._row(line) or None

    def _head(self, line: Line) -> None:
        self._columns, units = [], set()
        for match in _COLUMN.finditer(line.text):
            name = match["id"] or match["bw"] or (match["rate"] and "rate") or match["t"] or match["percent"]
            self._columns.append(name or (match["tps"] and "tps") or "")
            units |= {match["bw_unit"] or match["t_unit"] or match["p_unit"]} - {None}
        is_known = {"bytes", "iterations"} <= set(self._columns) and {"average", "t_avg", "t_min"} & set(self._columns)
        if not is_known or len(units) != 1:
            raise unreadable(TOOL, line, "the table's header is cut or garbled")
        unit = units.pop()
        if unit != "usec" and unit not in _GBIT_S:
            raise unreadable(TOOL, line, f"values in {unit} have no fixed meaning")
        self._gbit_s = _GBIT_S.get(unit, 0.0)
        self._has_more_columns = bool(_COLUMN.sub("", line.text).strip())

    def _row(self, line: Line) -> str:
        cell = _CELL if "average" in self._columns else _LATENCY_CELL
        cells, position = list[str](), 0
        while len(cells) < len(self._columns) and (match := cell.match(line.text, position)):
            cells.append(match[1])
            position = match.end()
        rest = line.text[position:]
        values = dict(zip(self._columns, map(_value, cells), strict=False))
        is_whole = all(cell.isdigit() for name, cell in zip(self._columns, cells, strict=False) if name in _COUNTS)
        is_glued = bool(rest) and not rest[0].isspace() and not _is_error(rest)
        is_garbled = is_glued or (_CELL.match(rest) and not self._has_more_columns)
        if len(cells) < len(self._columns) or not is_whole or is_garbled:
            raise unreadable(TOOL, line, f"not the {len(self._columns)} columns of the table's header")
        self.rows.append(_row_of(values, self._gbit_s))
        if values["iterations"] == 0:
            self.idle = self.idle or line.text[:position].strip()
        return rest.strip()


def _value(cell: str) -> float | None:
    # perftest 5 printed negative figures for runs too long for its counters
    value = float(cell)
    return value if math.isfinite(value) and value >= 0 else None


@cache
def _kinds() -> list[tuple[str, re.Pattern[str]]]:
    return [(kind, re.compile(pattern)) for kind, pattern in table(Path(__file__).with_suffix(".yml"))]


# in the output of a run that has figures such a line may be a mere warning
_COMPLAINT = re.compile(
    r"^\s*\w+ failed\b|^\s*(?:\w+: )?(?:Failed to|Couldn't|Can(?:no|')t|Unable to|ERROR\b|Error\b|RDMA CM event error)"
)


# of taking the connection down, after the figures
_LATE = re.compile(r"Failed to disconnect|^\s*ERRNO:")
# what started the program says so in words of its own: sudo cannot resolve this host's name, and goes on
_STARTER = re.compile(r"^\s*(?:sudo|ssh|-?bash|sh): ")


@dataclass(frozen=True, slots=True)
class PerftestError:
    """A reason why a run failed, and its line; kinds are those of perftest.yml, peer_lost, timeout and other."""

    kind: str
    text: str


def _is_error(text: str) -> bool:
    return any(pattern.search(text) for _, pattern in _kinds()) or _COMPLAINT.match(text) is not None


def _find_error(lines: Sequence[Line], has_figures: bool) -> PerftestError | None:
    tool_lines = [line for line in lines if not _STARTER.match(line.text)]
    if tool_lines or has_figures:
        lines = tool_lines
    if has_figures:
        lines = [line for line in lines if not _LATE.search(line.text)]
    for kind, pattern in _kinds():
        for line in lines:
            if pattern.search(line.text):
                return PerftestError(kind, line.text.strip())
    if lines and not has_figures:
        return PerftestError("other", lines[0].text.strip())
    return None
