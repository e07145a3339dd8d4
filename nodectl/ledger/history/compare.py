"""Measurements compared with earlier ones of the same thing."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, time
from pathlib import Path

from nodectl.common.documents import values_of
from nodectl.common.files import read_json
from nodectl.errors import UsageError
from nodectl.ledger.history.database import iso
from nodectl.ledger.history.store import Identity, Past, identity_of
from nodectl.model.acceptance import Acceptance
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
    """Return a warning for what is worse by 5 % and outside both spreads; unknown where nothing could be compared."""
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


def against(before: Acceptance, after: Acceptance) -> Comparison:
    """Return the figures of `after` beside those of `before`."""
    old = by_identity(taken.measurement for taken in before.taken)
    return compare(f"before ({before.id})", [taken.measurement for taken in after.taken], old)


def scatter(one: Acceptance, other: Acceptance) -> dict[str, float]:
    """Return, by probe, how far apart any of its figures lay in two looks at the same hosts, in percent."""
    apart = defaultdict[str, float](float)
    for change in against(one, other).changes:
        apart[change.probe] = max(apart[change.probe], abs(change.change_percent or 0.0))
    return apart


def losses(
    before: Acceptance, after: Acceptance, tolerance_percent: float, noise: Mapping[str, float] | None = None
) -> dict[tuple[str, str], str]:
    """Return, by host and subject, the steps that passed before and do not now, or are gone, and the worse figures.

    A figure is worse by the tolerance, and by the `noise` of its probe in percent, and outside both spreads where both
    were measured more than once.
    """
    wrong, formerly = (Status.FAILED, Status.UNKNOWN), {row.host: row.steps for row in before.hosts}
    lost = {}
    for row in after.hosts:
        for step, status in row.steps.items():
            if status in wrong and formerly.get(row.host, {}).get(step) not in wrong:
                why = [f" ({one.finding.check}: {one.finding.actual})" for one in row.reasons if one.step == step]
                lost[row.host, step] = f"{step}: {status}{''.join(why[:1])}"
        # what needs several hosts is no part of an acceptance of fewer
        for step, status in formerly.get(row.host, {}).items() if len(after.hosts) >= len(before.hosts) else ():
            if status not in wrong and step not in row.steps:
                lost[row.host, step] = f"{step}: {status} before, and not tried now"
    for change in against(before, after).changes:
        if is_worse(change, max(tolerance_percent, (noise or {}).get(change.probe, 0.0)), once=True):
            worse = _finding("before", change)
            lost |= {
                (name, worse.subject): f"{worse.subject}: {worse.actual}; {worse.expected}" for name in worse.hosts
            }
    return lost


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
    """Read `LAST`, a date or a file's name; raise UsageError for any other text."""
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
    """Read the measurements of a saved probe; UsageError for what is none."""
    document = read_json(path, _REMEDY)
    schema, rows = (document.get(key) if isinstance(document, dict) else None for key in ("schema", "measurements"))
    if schema != "nodectl.probe/1" or not isinstance(rows, list):
        raise UsageError(f"{path}: no measurements of a probe in it (its schema is {schema!r})", _REMEDY)
    try:
        return values_of(Measurement, rows, extra="ignore")
    except ValueError as error:
        raise UsageError(f"{path}: malformed measurement: {error}", _REMEDY) from error
