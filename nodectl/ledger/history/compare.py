"""Measurements against earlier ones of the same thing: how much, and whether that is more than they scatter."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, time
from pathlib import Path
from typing import Any

from nodectl.common.files import read_json
from nodectl.errors import UsageError
from nodectl.ledger.history.database import iso
from nodectl.ledger.history.identity import Identity, identity_of
from nodectl.ledger.history.store import Past
from nodectl.model.comparison import Change, Comparison
from nodectl.model.finding import Finding
from nodectl.model.measurement import Measurement
from nodectl.model.status import Status
from nodectl.probes.registry import kind_of

# SuperBench and the vendors' suites call 5 % below the baseline a defect
TOLERANCE_PERCENT = 5.0


def compare(against: str, new: Sequence[Measurement], old: Mapping[str, Past]) -> Comparison:
    """Each new measurement beside the old one of its identity."""
    changes, only_new, seen = [], [], set()
    for measurement in new:
        identity = identity_of(measurement)
        past = old.get(identity.key)
        if past is None:
            only_new.append(identity.label)
        else:
            seen.add(identity.key)
            changes.append(_change(identity, past, measurement))
    only_old = [identity_of(past.measurement).label for key, past in old.items() if key not in seen]
    return Comparison(against, tuple(changes), tuple(only_new), tuple(only_old))


def by_identity(measurements: Iterable[Measurement]) -> dict[str, Past]:
    """Measurements that were not kept by us, such as those of a file: without run and time."""
    return {identity_of(measurement).key: Past(0, 0.0, measurement) for measurement in measurements}


def findings(compared: Comparison) -> tuple[Finding, ...]:
    """Return a warning for what is worse by 5 % and outside both spreads; unknown where nothing could be compared."""
    if not compared.changes:
        actual = f"nothing measured here can be compared with {compared.against}"
        remedy = "measure the same hosts with the same options, then compare"
        return (Finding("", "compare", Status.UNKNOWN, actual=actual, remedy=remedy),)
    return tuple(_finding(compared.against, change) for change in compared.changes if is_worse(change))


def is_worse(change: Change) -> bool:
    """Worse by the tolerance and outside both spreads."""
    if change.change_percent is None or not change.outside_spreads:
        return False
    lower = kind_of(change.probe).lower_is_better(change.unit)
    if lower is None:
        return False
    return (change.change_percent if lower else -change.change_percent) >= TOLERANCE_PERCENT


def _change(identity: Identity, past: Past, new: Measurement) -> Change:
    old = past.measurement
    return Change(
        probe=identity.probe,
        hosts=identity.hosts,
        direction=identity.direction,
        subject=identity.subject,
        size_bytes=identity.size_bytes,
        unit=identity.unit,
        old=old.value,
        new=new.value,
        change_percent=100 * (new.value / old.value - 1) if old.value else None,
        outside_spreads=_is_outside(old, new),
        old_time=iso(past.time) if past.time else None,
    )


def _is_outside(old: Measurement, new: Measurement) -> bool | None:
    """Further apart than either scattered; None where one of them was measured once only, and does not say."""
    if old.spread is None or new.spread is None:
        return None
    return abs(new.value - old.value) > max(abs(old.spread * old.value), abs(new.spread * new.value))


def _finding(against: str, change: Change) -> Finding:
    identity = Identity(change.probe, change.hosts, change.direction, change.unit, change.subject, change.size_bytes)
    unit = kind_of(change.probe).unit(change.unit)
    return Finding(
        change.hosts[0],
        "compare",
        Status.WARNING,
        subject=identity.label,
        expected=f"{unit.short(change.old)} ({against})",
        actual=f"{unit.short(change.new)}, {change.change_percent or 0:+.1f} % and outside both spreads",
        remedy="measure again; then look at what has changed since (`nodectl health`)",
        kind=identity.kind,
        hosts=change.hosts,
    )


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
    """Read the measurements of a saved probe."""
    document = read_json(path, _REMEDY)
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
