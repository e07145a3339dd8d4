"""Measurements compared with earlier ones of the same thing."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, time
from pathlib import Path

from nodectl.common.documents import values_of
from nodectl.common.files import read_document
from nodectl.errors import UsageError
from nodectl.ledger.history.database import iso
from nodectl.ledger.history.store import Identity, Past, identity_of
from nodectl.model.acceptance import Acceptance, Seen
from nodectl.model.finding import Finding
from nodectl.model.measurement import Change, Comparison, Measurement
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
    """Return a warning for what is worse by 5 % and outside both spreads; unknown if nothing could be compared."""
    if not compared.changes:
        actual = f"nothing measured here can be compared with {compared.against}"
        remedy = "measure the same hosts with the same options, then compare"
        return (Finding("", "compare", Status.UNKNOWN, actual=actual, remedy=remedy),)
    return tuple(_finding(compared.against, change) for change in compared.changes if is_worse(change))


def is_worse(change: Change, tolerance_percent: float = TOLERANCE_PERCENT, *, once: bool = False) -> bool:
    """Worse by the tolerance and outside both spreads; with `once` also where one of them was measured once only."""
    if change.change_percent is None or not (change.outside_spreads or (once and change.outside_spreads is None)):
        return False
    lower = kind_of(change.probe).lower_is_better(change.unit)
    if lower is None:
        return False
    return (change.change_percent if lower else -change.change_percent) >= tolerance_percent


def losses(before: Acceptance, after: Acceptance, tolerance_percent: float) -> tuple[Seen, ...]:
    """Return each figure that is worse than before by the tolerance, a failure of the step that measured it.

    It is also outside both spreads if both were measured more than once. Unknown if no figure can be compared.
    """
    old = by_identity(taken.measurement for taken in before.taken)
    compared = compare(f"accepted in {before.id}", [taken.measurement for taken in after.taken], old)
    if not compared.changes:
        return tuple(Seen(after.steps[0].name, finding) for finding in findings(compared))
    steps = {taken.measurement.probe: taken.step for taken in after.taken}
    worse = [change for change in compared.changes if is_worse(change, tolerance_percent, once=True)]
    return tuple(
        Seen(steps[change.probe], replace(_finding(compared.against, change), status=Status.FAILED)) for change in worse
    )


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
    """Further apart than either scattered; None if one of them was measured once only, and does not say."""
    if old.spread is None or new.spread is None:
        return None
    return abs(new.value - old.value) > max(abs(old.spread * old.value), abs(new.spread * new.value))


def _finding(against: str, change: Change) -> Finding:
    identity = Identity(change.probe, change.hosts, change.direction, change.unit, change.subject, change.size_bytes)
    unit = kind_of(change.probe).unit(change.unit)
    beyond = " and outside both spreads" if change.outside_spreads else ""
    return Finding(
        change.hosts[0],
        "compare",
        Status.WARNING,
        subject=identity.label,
        expected=f"{unit.short(change.old)} ({against})",
        actual=f"{unit.short(change.new)}, {change.change_percent or 0:+.1f} %{beyond}",
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
    """Read `LAST`, a date or a file of a saved probe; raise UsageError for any other text."""
    if text.upper() == "LAST":
        return Against(text)
    path = Path(text)
    if path.is_file():
        document = read_document(path, "nodectl.probe/1", _REMEDY)
        try:
            return Against(text, saved=values_of(Measurement, document.get("measurements"), extra="ignore"))
        except ValueError as error:
            raise UsageError(f"{path}: malformed measurement: {error}", _REMEDY) from error
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        reason = "is a folder" if path.is_dir() else "is neither LAST nor a date, and there is no such file"
        raise UsageError(f"--compare {text}: {reason}", _REMEDY) from error
    if len(text) <= len("2026-11-20"):  # a day counts until its end
        moment = datetime.combine(moment.date(), time.max)
    return Against(text, upto=moment.timestamp())
