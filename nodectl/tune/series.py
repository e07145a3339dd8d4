"""The order of an interleaved trial, and its measurements as series of pairs, which can be written and read back."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from nodectl.errors import UsageError
from nodectl.history.identity import Identity, identity_of
from nodectl.model.measurement import Measurement
from nodectl.model.trial import Pair, Series

SCHEMA = "nodectl.series/1"
_REMEDY = "give a file of series that nodectl wrote"


@dataclass(frozen=True, slots=True)
class Turn:
    """One measurement to take: of which pair, and whether with the candidate's settings."""

    pair: int
    candidate: bool


@dataclass(frozen=True, slots=True)
class Taken:
    """What a turn measured; nothing where it failed."""

    turn: Turn
    measurements: tuple[Measurement, ...] = ()


def schedule(pairs: int) -> Iterator[Turn]:
    """A B, B A, A B, …: what drifts steadily helps each of the two as often as it harms it."""
    for pair in range(pairs):
        yield Turn(pair, candidate=pair % 2 == 1)
        yield Turn(pair, candidate=pair % 2 == 0)


def series_of(profile: str, baseline: str, taken: Sequence[Taken]) -> tuple[Series, ...]:
    """A series for each thing that was measured, in the order in which they were first seen."""
    values: dict[Identity, dict[Turn, float]] = defaultdict(dict)
    for each in taken:
        for measurement in each.measurements:
            values[identity_of(measurement)][each.turn] = measurement.value
    turns = [each.turn for each in taken]
    return tuple(
        Series(
            profile=profile,
            baseline=baseline,
            probe=identity.probe,
            unit=identity.unit,
            pairs=_pairs(turns, found),
            subject=", ".join(filter(None, [identity.direction or ",".join(identity.hosts), identity.subject])),
            size_bytes=identity.size_bytes,
        )
        for identity, found in values.items()
    )


def _pairs(turns: Sequence[Turn], found: Mapping[Turn, float]) -> tuple[Pair, ...]:
    """Pairs of which both turns were taken; what failed in one of them, or came to nothing, is None."""
    order = {turn: place for place, turn in enumerate(turns)}
    pairs = []
    for number in dict.fromkeys(turn.pair for turn in turns):
        first, second = Turn(number, candidate=False), Turn(number, candidate=True)
        if first in order and second in order:
            pairs.append(Pair(found.get(first) or None, found.get(second) or None, order[second] < order[first]))
    return tuple(pairs)


def document(many: Sequence[Series]) -> dict[str, object]:
    """Series as plain data."""
    return {"schema": SCHEMA, "series": [asdict(series) for series in many]}


def read_series(path: Path) -> tuple[Series, ...]:
    """Series from a file; UsageError where it holds none."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror or error}", _REMEDY) from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path}: not JSON: {error}", _REMEDY) from error
    if not isinstance(found, dict) or found.get("schema") != SCHEMA:
        raise UsageError(f"{path}: no series of pairs in it ({SCHEMA})", _REMEDY)
    try:
        return tuple(_read(each) for each in found["series"])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UsageError(f"{path}: malformed series: {error!r}", _REMEDY) from error


def _read(each: Mapping[str, Any]) -> Series:
    size = each.get("size_bytes")
    return Series(
        profile=str(each["profile"]),
        baseline=str(each["baseline"]),
        probe=str(each["probe"]),
        unit=str(each["unit"]),
        pairs=tuple(
            Pair(_number(one["baseline"]), _number(one["candidate"]), bool(one.get("candidate_first", False)))
            for one in each["pairs"]
        ),
        subject=str(each.get("subject", "")),
        size_bytes=None if size is None else int(size),
    )


def _number(value: object) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{value!r} is no number")
    return float(value)
