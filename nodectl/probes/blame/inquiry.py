"""The course of an inquiry: who looks slow is measured again, with partners known to be good, before anyone is blamed.

Pure: it is told readings, and says which rounds to measure next, or what it has come to.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import NormalDist, median

from nodectl.probes.blame.fit import (
    MEDIAN_ERROR,
    Cause,
    Fit,
    HostPair,
    Reading,
    Suspect,
    entries_of,
    fit,
    strictness,
)

# measured again, a cause has to be below the usual by so many standard errors, and by so much (10 %)
BLAME_SCORE, BLAME_EFFECT = 5.0, 0.105
STAGES = 3
# what a busy machine can do, too (30 %), has to be seen at several times
_MILD, _MILD_STAGES = 0.36, 2
# and healthy pairs beside it must not be as slow, but for this part of them
_ODD_CONTROLS = 0.05
_MOST_SUSPECTS = 256
_LEAST_CONTROLS = 4
_MOST_CERTAIN = 0.9999


@dataclass(frozen=True, slots=True)
class Blamed:
    """A cause that stayed slow when it was measured again; `partners` are those it was measured with then."""

    suspect: Suspect
    confidence: float
    again: int
    partners: tuple[str, ...]
    usual: float


@dataclass(frozen=True, slots=True)
class Verdict:
    """Hold who is to blame; `unsettled` are those of whom it cannot be told, because of rivals or of noise."""

    blamed: tuple[Blamed, ...]
    unsettled: tuple[Suspect, ...]
    noise: float


@dataclass(frozen=True, slots=True)
class _View:
    fit: Fit
    shifts: Mapping[int, float]
    controls: Mapping[int, Sequence[float]]


@dataclass
class Inquiry:
    """Readings so far. Give it those of the first look, then of each of `next_rounds`, until there are none.

    Nobody is a suspect who is not below the usual by `least_effect` (of logarithms).
    """

    switch_of: Mapping[str, str] = field(default_factory=dict)
    least_effect: float = 0.0
    readings: list[Reading] = field(default_factory=list)
    stage: int = 0
    _asked: set[frozenset[str]] = field(default_factory=set)

    def add(self, readings: Iterable[Reading]) -> None:
        """Add readings of the first measurement or of a repetition."""
        self.readings += [
            replace(reading, stage=self.stage, control=self.stage > 0 and frozenset(reading.link) not in self._asked)
            for reading in readings
        ]

    def next_rounds(self) -> list[list[HostPair]]:
        """Return rounds to measure now; none if nothing is left to ask. Healthy pairs run beside the suspects."""
        if self.stage >= STAGES or len(self._names()) < 3:
            return []
        view = self._view()
        open_ones = [suspect for suspect in view.fit.suspects if self._blamed(suspect, view) is None][:_MOST_SUSPECTS]
        plan = Plan(self.readings, view.fit.suspects)
        rounds = plan.rounds([suspect.cause for suspect in open_ones], turn=self.stage)
        if rounds:
            self.stage += 1
            self._asked = {frozenset(link) for asked, _ in rounds for link in asked}
        return [asked + controls for asked, controls in rounds]

    def verdict(self) -> Verdict:
        """Return what can be said by now."""
        view = self._view()
        blamed = [(suspect, self._blamed(suspect, view)) for suspect in view.fit.suspects]
        return Verdict(
            tuple(_merged([blame for _, blame in blamed if blame is not None])),
            tuple(suspect for suspect, settled in blamed if settled is None and self._stubborn(suspect)),
            view.fit.noise,
        )

    def _names(self) -> set[str]:
        return {name for reading in self.readings for name in reading.link}

    def _view(self) -> _View:
        first = entries_of([reading for reading in self.readings if not reading.stage], {})
        best, shifts = fit(first, self.switch_of), {}
        levels: dict[int, dict[HostPair, float]] = defaultdict(dict)
        for reading in self.readings:
            if reading.control and reading.value > 0 and reading.link in first:
                levels[reading.stage][reading.link] = math.log(reading.value)
        for stage, of_stage in levels.items():
            shift = median(level - first[link].level for link, level in of_stage.items())
            # all is faster in a later stage only if the controls show it clearly
            clear = BLAME_SCORE * best.noise / math.sqrt(len(of_stage))
            if len(of_stage) >= _LEAST_CONTROLS and abs(shift) > clear:
                shifts[stage] = shift
        if self.stage:
            best = fit(entries_of(self.readings, shifts), self.switch_of)
        return _View(
            replace(best, suspects=tuple(one for one in best.suspects if one.effect <= -self.least_effect)),
            shifts,
            {
                stage: [level - shifts.get(stage, 0.0) - best.usual[link] for link, level in of_stage.items()]
                for stage, of_stage in levels.items()
            },
        )

    def _blamed(self, suspect: Suspect, view: _View) -> Blamed | None:
        """Return the suspect as one to blame, by what was measured again alone; None if that does not suffice."""
        cause, best = suspect.cause, view.fit
        again = [
            reading for reading in self.readings if reading.stage and not reading.control and cause.covers(reading.link)
        ]
        partners = sorted({name for reading in again for name in reading.link} - {*cause.hosts})
        enough = len(again) >= AGAIN if cause.kind in ("path", "direction") else len(partners) >= OTHERS
        if suspect.rivals or not enough:
            return None
        lower = [
            math.log(reading.value) - view.shifts.get(reading.stage, 0.0) - best.usual[reading.link]
            if reading.value > 0
            else suspect.effect
            for reading in again
        ]
        effect, stages = median(lower), {reading.stage for reading in again}
        error = math.hypot(best.noise * MEDIAN_ERROR / math.sqrt(len(lower)), best.error)
        score = -effect / error / strictness(len(best.usual))
        if effect > -BLAME_EFFECT or score < BLAME_SCORE or sum(step < effect / 2 for step in lower) < 0.8 * len(lower):
            return None
        beside = [offset for stage in stages for offset in view.controls.get(stage, ())]
        as_slow = sum(offset <= effect for offset in beside) > max(1, _ODD_CONTROLS * len(beside))
        if as_slow or (effect > -_MILD and len(stages) < _MILD_STAGES):
            return None
        doubt = 3 * len(self._names()) * NormalDist().cdf(-score)
        return Blamed(
            replace(suspect, effect=effect, score=score),
            min(_MOST_CERTAIN, 1 - doubt),
            len(again),
            tuple(partners),
            math.exp(median(best.usual[reading.link] for reading in again)),
        )

    def _stubborn(self, suspect: Suspect) -> bool:
        """Return whether a suspect that is not blamed is worth a word: slow again, too, or never measured again."""
        again = [reading for reading in self.readings if reading.stage and suspect.cause.covers(reading.link)]
        return suspect.effect <= -BLAME_EFFECT and (suspect.score >= BLAME_SCORE or (not again and bool(self.stage)))


def _merged(blamed: Sequence[Blamed]) -> list[Blamed]:
    """One for each host, path and switch: what is slow both ways is one thing."""
    merged: dict[tuple[str, tuple[str, ...]], Blamed] = {}
    for blame in blamed:
        cause = blame.suspect.cause
        kind = "path" if cause.kind == "direction" else cause.kind
        key = (kind, tuple(sorted(cause.hosts)))
        other = merged.get(key)
        if other is None:
            merged[key] = blame
            continue
        deeper = min(blame, other, key=lambda candidate: candidate.suspect.effect)
        both = replace(cause, kind=kind, hosts=key[1], side="both" if kind == "host" else "")
        merged[key] = replace(deeper, suspect=replace(deeper.suspect, cause=both))
    return list(merged.values())


# a stage measures a suspect path so often, a suspect host with so many others
AGAIN, OTHERS = 3, 2
_MOST_ROUNDS, _MOST_CONTROLS = 8, 16

Round = tuple[list[HostPair], list[HostPair]]


class Plan:
    """The next stage, by what was measured so far and who is suspected of anything."""

    def __init__(self, readings: Sequence[Reading], suspects: Iterable[Suspect]) -> None:
        self._partners_of: dict[str, set[str]] = defaultdict(set)
        self._met: dict[HostPair, int] = defaultdict(int)
        count: dict[str, int] = defaultdict(int)
        first: dict[HostPair, None] = {}
        for reading in readings:
            for name, other in (reading.link, reading.link[::-1]):
                count[name] += 1
                self._partners_of[name].add(other)
                self._met[name, other] += reading.stage > 0
            if not reading.stage:
                first[min(reading.link), max(reading.link)] = None
        touched = {name for suspect in suspects for name in suspect.cause.hosts}
        self._names = sorted(count)
        # hosts that no suspect touches, those with the most measurements first
        self._good = sorted(set(count) - touched, key=lambda name: (-count[name], name))
        # pairs of them that were measured at first, so that it shows how much has changed since
        self._usual = [link for link in first if not touched & set(link)]

    def rounds(self, causes: Iterable[Cause], turn: int) -> list[Round]:
        """Return the rounds of pairs that are asked, each with the controls beside it; others with each `turn`."""
        wanted = [link for cause in causes for link in self._wanted(cause)]
        asked = packed(wanted)[:_MOST_ROUNDS]
        return [(links, self._controls(links, turn * _MOST_ROUNDS + number)) for number, links in enumerate(asked)]

    def _wanted(self, cause: Cause) -> list[HostPair]:
        if cause.kind in ("path", "direction"):
            a, b = sorted(cause.hosts)
            # an end with few partners may itself be the cause
            lonely = [end for end in (a, b) if len(self._partners_of[end]) <= OTHERS]
            return [(a, b)] * AGAIN + [link for end in lonely for link in self._partners(end)]
        if cause.kind == "switch":
            outside = [name for name in self._good if name not in cause.hosts]
            inside = cause.hosts[: 2 * OTHERS] if outside else ()
            return [(host, outside[number % len(outside)]) for number, host in enumerate(inside)]
        return self._partners(cause.hosts[0])

    def _partners(self, host: str) -> list[HostPair]:
        """Good hosts for this one: first those not yet met again, and not the same ones for all suspects."""
        others = [name for name in self._good if name != host]
        start = sum(map(ord, host)) % max(1, len(others))
        turned = sorted(others[start:] + others[:start], key=lambda name: self._met[host, name])
        if len(turned) < OTHERS:  # a fleet so small that everybody is near a suspect
            rest = [name for name in self._names if name != host and name not in turned]
            turned += sorted(rest, key=lambda name: self._met[host, name])
        return [(host, name) for name in turned[:OTHERS]]

    def _controls(self, asked: Sequence[HostPair], turn: int) -> list[HostPair]:
        """Healthy pairs of the first look: the same load as then, and what is usual now."""
        busy = {name for pair in asked for name in pair}
        start = 7 * turn % max(1, len(self._usual))
        controls: list[HostPair] = []
        for pair in (*self._usual[start:], *self._usual[:start]):
            if len(controls) == _MOST_CONTROLS:
                break
            if not busy & set(pair):
                controls.append(pair)
                busy |= set(pair)
        return controls


def packed(pairs: Sequence[HostPair]) -> list[list[HostPair]]:
    """Put the pairs into few rounds, each into the first one in which both its hosts are free."""
    rounds: list[list[HostPair]] = []
    busy: list[set[str]] = []
    for pair in pairs:
        number = next((number for number, hosts in enumerate(busy) if not hosts & set(pair)), len(rounds))
        if number == len(rounds):
            rounds.append([])
            busy.append(set())
        rounds[number].append(pair)
        busy[number] |= set(pair)
    return rounds
