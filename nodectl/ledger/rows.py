"""Events and parts as rows of the two tables, and back."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from typing import Any

from nodectl import __version__
from nodectl.history.database import moment, number
from nodectl.ledger.events import Event, EventKind, KeptPart
from nodectl.model.acceptance import NodeVerdict, Part, PartKind, Seen
from nodectl.model.finding import Finding
from nodectl.model.status import Status

EVENT_COLUMNS = (
    *("time", "kind", "fleet", "host", "who", "reason", "whole", "cordon"),
    *("acceptance", "began", "nature", "verdict", "steps", "left_after", "nodectl"),
)
PART_COLUMNS = ("kind", "part", "model", "place", "serial", "findings")
# a nodectl of another version may have kept more
_OF_FINDING = tuple(field.name for field in fields(Finding))


def event_row(event: Event) -> tuple[object, ...]:
    """In the order of EVENT_COLUMNS."""
    return (
        *(event.time, str(event.kind), event.fleet, event.host, event.who, event.reason, int(event.whole)),
        *(event.cordon, event.acceptance, event.began, event.nature, str(event.verdict or "")),
        *(json.dumps({name: str(status) for name, status in event.steps.items()}), event.left_after, __version__),
    )


def part_row(kept: KeptPart) -> tuple[object, ...]:
    """In the order of PART_COLUMNS."""
    part = kept.part
    findings = json.dumps([asdict(seen) for seen in kept.findings])
    return (str(part.kind), part.id, part.model, part.place, part.serial, findings)


def event_of(row: Sequence[Any], parts: tuple[KeptPart, ...]) -> Event:
    """Of its number and EVENT_COLUMNS; ValueError for what is no event: SQLite keeps anything in any column."""
    number_of, when, kind, fleet, host, who, reason, whole, cordon = row[:9]
    acceptance, began, nature, verdict, steps, left, _ = row[9:]
    known = json.loads(steps)
    if not isinstance(known, dict):
        raise ValueError(f"event {number_of}: {steps[:40]!r} are no steps")
    return Event(
        *(int(number_of), moment(when), EventKind(kind), str(fleet), str(host), str(who), str(reason), bool(whole)),
        cordon=None if cordon is None else int(number(cordon)),
        acceptance=str(acceptance),
        began=None if began is None else moment(began),
        nature=str(nature),
        verdict=NodeVerdict(verdict) if verdict else None,
        steps={str(name): Status(status) for name, status in known.items()},
        left_after=str(left),
        parts=parts,
    )


def kept_of(row: Sequence[Any], host: str) -> KeptPart:
    """Of PART_COLUMNS; ValueError for what is no part."""
    kind, identity, model, place, serial, findings = row
    part = Part(PartKind(kind), str(identity), str(host), str(model), str(place), str(serial))
    return KeptPart(part, tuple(_seen(row) for row in json.loads(findings)))


def _seen(row: Mapping[str, Any]) -> Seen:
    try:
        finding = {name: value for name, value in row["finding"].items() if name in _OF_FINDING}
        finding["status"], finding["hosts"] = Status(finding["status"]), tuple(map(str, finding["hosts"]))
        return Seen(str(row["step"]), Finding(**finding))
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{str(row)[:80]!r} is no finding: {error!r}") from error
