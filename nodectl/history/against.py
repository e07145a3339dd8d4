"""What `--compare` may be given: LAST, a date, or a file that `probe --output json` printed."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, time
from pathlib import Path
from typing import Any

from nodectl.errors import UsageError
from nodectl.model.measurement import Measurement

_REMEDY = "give LAST, a date such as 2026-11-20 or 2026-11-20T14:30, or a file of `nodectl --output json probe …`"


@dataclass(frozen=True, slots=True)
class Against:
    """The wish, read: until when the history counts, or the measurements of a file."""

    text: str
    upto: float = math.inf
    saved: tuple[Measurement, ...] | None = None


def read_against(text: str) -> Against:
    """UsageError for what is none of the three."""
    if text.upper() == "LAST":
        return Against(text)
    path = Path(text)
    if path.is_file():
        return Against(text, saved=read_measurements(path))
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        reason = "is a folder" if path.is_dir() else "is neither LAST nor a date, and there is no such file"
        raise UsageError(f"--compare {text}: {reason}", _REMEDY) from error
    if len(text) <= len("2026-11-20"):  # a day counts until its end
        moment = datetime.combine(moment.date(), time.max)
    return Against(text, upto=moment.timestamp())


def read_measurements(path: Path) -> tuple[Measurement, ...]:
    """The measurements of a saved probe."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}", _REMEDY) from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path}: not JSON: {error}", _REMEDY) from error
    rows = document.get("measurements") if isinstance(document, dict) else None
    if not isinstance(rows, list):
        raise UsageError(f"{path}: no measurements in it", _REMEDY)
    try:
        return tuple(_measurement(row) for row in rows)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UsageError(f"{path}: malformed measurement: {error!r}", _REMEDY) from error


def _measurement(row: Mapping[str, Any]) -> Measurement:
    return Measurement(
        probe=str(row["probe"]),
        hosts=tuple(map(str, row["hosts"])),
        value=_number(row["value"]),
        unit=str(row["unit"]),
        direction=str(row.get("direction") or ""),
        expected=None if row.get("expected") is None else _number(row["expected"]),
        spread=None if row.get("spread") is None else _number(row["spread"]),
        conditions=dict(row.get("conditions") or {}),
    )


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"{value!r} is no number")
    return float(value)
