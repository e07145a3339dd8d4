"""Reads what perftest's `--out_json` writes: not JSON (bare names, trailing commas), and without the unit."""

from __future__ import annotations

import math
import re

from nodectl.errors import ParseError
from nodectl.parsers.rdma.perftest_rows import Row, row_of
from nodectl.parsers.text import Line, unreadable

_TOOL = "perftest"
_STARTS = re.compile(r'\b(?:test_info|results)"?\s*:\s*[{\[]')
_PAIR = re.compile(
    r'"?\b(MsgSize|n_iterations|BW_\w+|MsgRate|sl|t_\w+|tps_\w+|percentile_[\d.]+)"?\s*:\s*"?([^",{}\[\]\n]*)'
)
_NUMBER = re.compile(r"\s*(\d{1,20}(?:\.\d{1,20})?|-?nan|-?inf)\s*")
_NAMES = {
    "MsgSize": "bytes",
    "n_iterations": "iterations",
    "BW_peak": "peak",
    "BW_average": "average",
    "MsgRate": "rate",
    "percentile_99": "99",
    "percentile_99.9": "99.9",
    "tps_average": "tps",
}
_MIB = 2**20


def is_perftest_json(text: str) -> bool:
    """The text holds such a document."""
    return _STARTS.search(text) is not None


def json_rows(text: str) -> tuple[Row, ...]:
    """The results; ParseError for one that is cut, and where nothing tells the unit."""
    rows: list[dict[str, float | None]] = []
    places = []
    for match in _PAIR.finditer(text):
        line = Line(text.count("\n", 0, match.start()) + 1, match[0].strip())
        value = _NUMBER.fullmatch(match[2])
        if value is None:
            raise unreadable(_TOOL, line, "no number")
        if match[1] == "MsgSize":
            rows.append({})
            places.append(line)
        if rows:
            found = float(value[1])
            rows[-1].setdefault(_NAMES.get(match[1], match[1]), found if math.isfinite(found) else None)
    for row, line in zip(rows, places, strict=True):
        if "iterations" not in row or not row.keys() & {"average", "t_avg"}:
            raise unreadable(_TOOL, line, "the result is cut")
    return tuple(row_of(row, _unit_gbit_s(rows)) for row in rows)


def _unit_gbit_s(rows: list[dict[str, float | None]]) -> float:
    """One unit of throughput in Gbit/s, from the row whose message rate is told most precisely."""
    best = max(rows, key=lambda row: row.get("rate") or 0.0)
    average, rate_mpps, size = best.get("average"), best.get("rate"), best["bytes"]
    if not average:
        return 1.0
    if not rate_mpps or not size:
        raise ParseError(f"{_TOOL}: the JSON names no unit, and a message rate of 0 does not tell it")
    rate_b_s = rate_mpps * 1e6 * size
    in_gbit, in_mib = rate_b_s * 8 / 1e9, rate_b_s / _MIB
    is_gbit = abs(math.log(average / in_gbit)) < abs(math.log(average / in_mib))
    return 1.0 if is_gbit else _MIB * 8 / 1e9
