"""Reads perftest's tables of results by the names in their header, whichever version and test printed them."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

from nodectl.parsers.rdma.perftest_errors import is_error
from nodectl.parsers.text import Line, unreadable

_TOOL = "perftest"
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
_MIB_BITS = 2**20 * 8
# perftest's MB is 2^20 bytes; since version 24 it says so
_GBIT_S = {"Gb/sec": 1.0, "MB/sec": _MIB_BITS / 1e9, "MiB/sec": _MIB_BITS / 1e9}


@dataclass(frozen=True, slots=True)
class BwRow:
    """Throughput at one size; the peak is None where it was not measured, the rate where it is not printed."""

    size_bytes: int
    iterations: int
    peak_gbit_s: float | None
    average_gbit_s: float | None
    message_rate_mpps: float | None
    service_level: int | None = None


@dataclass(frozen=True, slots=True)
class LatRow:
    """Latency at one size; a run by duration gives the average and the transactions a second only."""

    size_bytes: int
    iterations: int
    min_us: float | None
    max_us: float | None
    typical_us: float | None
    average_us: float | None
    stdev_us: float | None
    p99_us: float | None
    p999_us: float | None
    transactions_per_s: float | None = None


Row = BwRow | LatRow
_LATENCIES = ("t_min", "t_max", "t_typical", "t_avg", "t_stdev", "99", "99.9", "tps")
_COUNTS = ("bytes", "sl", "iterations")


def row_of(values: Mapping[str, float | None], gbit_s: float) -> Row:
    """One row from values named as in the header; `gbit_s` is the unit of its throughput."""
    size, iterations = int(values["bytes"] or 0), int(values["iterations"] or 0)
    if "average" not in values:
        return LatRow(size, iterations, *(values.get(name) for name in _LATENCIES))
    peak, average, level = values.get("peak"), values["average"], values.get("sl")
    return BwRow(
        size_bytes=size,
        iterations=iterations,
        peak_gbit_s=peak * gbit_s if peak else None,
        average_gbit_s=None if average is None else average * gbit_s,
        message_rate_mpps=values.get("rate"),
        service_level=None if level is None else int(level),
    )


class Table:
    """Collects the rows below the header last seen; `idle` is a row of a run that moved nothing."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.idle: str | None = None
        self._columns: list[str] = []
        self._gbit_s = 0.0
        self._has_more_columns = False

    def read(self, line: Line) -> str | None:
        """None for a header or a row, else the text that is neither: the line, or what is glued to a row's end."""
        if _HEADER.match(line.text):
            self._head(line)
            return None
        if "#bytes" in line.text and _PREFIXED_HEADER.match(line.text):
            raise unreadable(_TOOL, line, "something stands before the table's header")
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
            raise unreadable(_TOOL, line, "the table's header is cut or garbled")
        unit = units.pop()
        if unit != "usec" and unit not in _GBIT_S:
            raise unreadable(_TOOL, line, f"values in {unit} have no fixed meaning")
        self._gbit_s = _GBIT_S.get(unit, 0.0)
        self._has_more_columns = bool(_COLUMN.sub("", line.text).strip())

    def _row(self, line: Line) -> str:
        cell = _CELL if "average" in self._columns else _LATENCY_CELL
        cells: list[str] = []
        position = 0
        while len(cells) < len(self._columns) and (match := cell.match(line.text, position)):
            cells.append(match[1])
            position = match.end()
        rest = line.text[position:]
        values = dict(zip(self._columns, map(_value, cells), strict=False))
        is_whole = all(each.isdigit() for name, each in zip(self._columns, cells, strict=False) if name in _COUNTS)
        is_glued = bool(rest) and not rest[0].isspace() and not is_error(rest)
        is_garbled = is_glued or (_CELL.match(rest) and not self._has_more_columns)
        if len(cells) < len(self._columns) or not is_whole or is_garbled:
            raise unreadable(_TOOL, line, f"not the {len(self._columns)} columns of the table's header")
        self.rows.append(row_of(values, self._gbit_s))
        if values["iterations"] == 0:
            self.idle = self.idle or line.text[:position].strip()
        return rest.strip()


def _value(cell: str) -> float | None:
    # perftest 5 printed negative figures for runs too long for its counters
    value = float(cell)
    return value if math.isfinite(value) and value >= 0 else None
