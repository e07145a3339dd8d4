"""The order of an interleaved trial, and its measurements as series of pairs, which can be written and read back."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import geometric_mean

from nodectl.ledger.history.store import Identity, identity_of
from nodectl.model.measurement import Measurement
from nodectl.model.trial import Pair, Series
from nodectl.model.verdict import MEAN_OF

# from so many on they are also judged together
_MANY = 3


@dataclass(frozen=True, slots=True)
class Turn:
    """One measurement to take: of which pair, and whether with the candidate's settings."""

    pair: int
    candidate: bool


@dataclass(frozen=True, slots=True)
class Taken:
    """Hold what a turn measured; nothing if it failed."""

    turn: Turn
    measurements: tuple[Measurement, ...] = ()


def schedule(pairs: int) -> Iterator[Turn]:
    """Yield A B, B A, A B, …: what drifts steadily helps each of the two as often as it harms it."""
    for pair in range(pairs):
        yield Turn(pair, candidate=pair % 2 == 1)
        yield Turn(pair, candidate=pair % 2 == 0)


def series_of(profile: str, baseline: str, taken: Sequence[Taken]) -> tuple[Series, ...]:
    """Return a series for each thing that was measured, in the order in which they were first seen.

    Where more than two paths (or hosts) are measured alike, their geometric mean is a series of its own, before theirs.
    """
    values: dict[Identity, dict[Turn, float]] = defaultdict(dict)
    for turn_taken in taken:
        for measurement in turn_taken.measurements:
            # what a probe measures again to find a culprit is no part of the pair
            values[identity_of(measurement)].setdefault(turn_taken.turn, measurement.value)
    turns = [turn_taken.turn for turn_taken in taken]
    groups: dict[tuple[str, str, str, int | None], list[Identity]] = defaultdict(list)
    for identity in values:
        groups[identity.probe, identity.unit, identity.subject, identity.size_bytes].append(identity)
    series = []
    for (probe, unit, subject, size_bytes), members in groups.items():
        lines = [(member.direction or ",".join(member.hosts), values[member]) for member in members]
        for where, measured in [*_together(members, values, turns), *lines]:
            named = ", ".join(filter(None, [where, subject]))
            series.append(Series(profile, baseline, probe, unit, _pairs(turns, measured), named, size_bytes))
    return tuple(series)


def _together(
    members: Sequence[Identity], values: Mapping[Identity, Mapping[Turn, float]], turns: Sequence[Turn]
) -> list[tuple[str, dict[Turn, float]]]:
    """Return the geometric mean of the members that were measured in every turn; [] for fewer than three."""
    steady = [values[member] for member in members if all(values[member].get(turn, 0) > 0 for turn in turns)]
    if len(members) < _MANY or len(steady) < _MANY:
        return []
    kind = "paths" if members[0].direction else "hosts"
    which = f"{len(steady)} {kind}" if len(steady) == len(members) else f"{len(steady)} of {len(members)} {kind}"
    return [
        (
            f"{MEAN_OF}{which}",
            {turn: geometric_mean(values_by_turn[turn] for values_by_turn in steady) for turn in turns},
        )
    ]


def _pairs(turns: Sequence[Turn], values: Mapping[Turn, float]) -> tuple[Pair, ...]:
    """Pairs of which both turns were taken; what failed in one of them, or came to nothing, is None."""
    order = {turn: place for place, turn in enumerate(turns)}
    pairs = []
    for number in dict.fromkeys(turn.pair for turn in turns):
        first, second = Turn(number, candidate=False), Turn(number, candidate=True)
        if first in order and second in order:
            pairs.append(Pair(values.get(first) or None, values.get(second) or None, order[second] < order[first]))
    return tuple(pairs)
