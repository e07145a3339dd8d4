"""Verdicts on the many series of a trial together: of hundreds that do nothing, some seem to do something by chance.

A fleet's mean, and what has none, are judged first; single paths and hosts after it, corrected for their number
(Holm). A verdict stands where the series says it by itself and its corrected p-value does not say chance.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import replace
from itertools import zip_longest
from statistics import fmean, median, variance

from nodectl.common.statistics import holm, more_in_pairs, more_often, student_p
from nodectl.model.trial import Pair, Series
from nodectl.model.verdict import Outcome, Summary, Verdict
from nodectl.trials.verdict import SPEED, judge, logarithms, summarise

# for gains and for failures alike, and for what leads and what is single: at 5 pairs little comes near it by chance
_ALPHA = 0.025
# the least turns in which a candidate that never measured anything is not unlucky
_NEVER = 2
_NO_PAIR = Pair(1.0, 1.0)


def judged(series: Sequence[Series], judge_by: str = SPEED) -> tuple[tuple[Verdict, ...], tuple[Summary, ...]]:
    """Return verdicts in the order of the series, and summaries in the order in which profiles first appear."""
    verdicts = judge_all(series)
    profiles = dict.fromkeys(verdict.profile for verdict in verdicts)
    summaries = tuple(
        summarise(name, [verdict for verdict in verdicts if verdict.profile == name], judge_by) for name in profiles
    )
    return verdicts, summaries


def judge_all(many: Sequence[Series]) -> tuple[Verdict, ...]:
    """Return the verdicts on the series of a trial, in their order."""
    verdicts = [judge(series) for series in many]
    means = {series.kind for series in many if series.is_mean}
    # what leads, and what is single, of each candidate
    families = _grouped(
        range(len(many)), lambda at: (many[at].profile, not many[at].is_mean and many[at].kind in means)
    )
    for places in families:
        for place, verdict in zip(places, _corrected([(many[at], verdicts[at]) for at in places]), strict=True):
            verdicts[place] = verdict
    p_values, failing = _failure_p_values(many), set()
    for places in families:
        corrected = holm([p_values[at][1] for at in places])
        failing |= {at for at, beside in zip(places, corrected, strict=True) if max(p_values[at][0], beside) < _ALPHA}
    return tuple(replace(verdict, fails_more=place in failing) for place, verdict in enumerate(verdicts))


def _grouped(places: Iterable[int], key: Callable[[int], Hashable]) -> list[list[int]]:
    groups: dict[Hashable, list[int]] = defaultdict(list)
    for place in places:
        groups[key(place)].append(place)
    return list(groups.values())


def _corrected(family: Sequence[tuple[Series, Verdict]]) -> list[Verdict]:
    """Return the family's verdicts: noise where the corrected p-value says that one of so many is so by chance."""
    judged = [place for place, (_, verdict) in enumerate(family) if verdict.verdict is not Outcome.UNKNOWN]
    p_values = dict(zip(judged, holm(_p_values([family[place][0] for place in judged])), strict=True))
    verdicts = []
    for place, (_, verdict) in enumerate(family):
        settled, p_value = replace(verdict, p_value=p_values.get(place)), p_values.get(place, 0.0)
        if verdict.verdict in (Outcome.BETTER, Outcome.WORSE) and len(judged) > 1 and p_value >= _ALPHA:
            reason = f"{verdict.reason}, as one of {len(judged)} may be by chance (p {p_value:.2g})"
            settled = replace(settled, verdict=Outcome.NOISE, reason=reason)
        verdicts.append(settled)
    return verdicts


def _p_values(many: Sequence[Series]) -> list[float]:
    """Return how likely each mean gain is where there is none, by Student's t.

    Of few pairs the variance is hardly known: that of the others of the probe counts as much as its own (as in the
    moderated t of Smyth 2004, with the weight given), so that nothing is significant for being calm by chance.
    """
    p_values = [1.0] * len(many)
    for places in _grouped(range(len(many)), lambda at: (many[at].probe, many[at].unit, many[at].is_mean)):
        gains = [logarithms(many[at]).clamped for at in places]
        spreads = [variance(values) for values in gains]
        usual = median(spreads) if len(places) > 1 else None
        for at, values, spread in zip(places, gains, spreads, strict=True):
            own_degrees = degrees = len(values) - 1
            if usual is not None:
                # the variance whose estimates have this median (Wilson and Hilferty 1931)
                degrees, spread = 2 * degrees, (spread + usual / (1 - 2 / (9 * own_degrees)) ** 3) / 2
            if spread:
                p_values[at] = student_p(fmean(values) / math.sqrt(spread / len(values)), degrees)
            elif fmean(values):
                p_values[at] = 0.0
    return p_values


def _failure_p_values(many: Sequence[Series]) -> dict[int, tuple[float, float]]:
    """Return how likely each one's failures are beside its own baseline, and beside all that is measured alike."""
    p_values: dict[int, tuple[float, float]] = {}
    for places in _grouped(range(len(many)), lambda at: many[at].kind):
        single = [at for at in places if not many[at].is_mean]
        # what fails in one turn counts as one
        turns = zip_longest(*(many[at].pairs for at in single), fillvalue=_NO_PAIR)
        fleet = more_in_pairs([_lost(pairs, candidate=True) - _lost(pairs, candidate=False) for pairs in turns])
        lost = {at: (_lost(many[at].pairs, candidate=False), _lost(many[at].pairs, candidate=True)) for at in single}
        total = sum(map(sum, lost.values())), 2 * sum(len(many[at].pairs) for at in single)
        p_values |= {at: (fleet, fleet) for at in places if many[at].is_mean}
        p_values |= {at: _fails(*lost[at], len(many[at].pairs), *total) for at in single}
    return p_values


def _fails(baseline: int, candidate: int, count: int, all_lost: int, all_taken: int) -> tuple[float, float]:
    if candidate <= baseline:
        return 1.0, 1.0
    # what never works with the candidate, and always without it, is no chance, however few turns there were
    if candidate == count >= _NEVER and not baseline:
        return 0.0, 0.0
    beside = more_often(candidate, count, all_lost - candidate, all_taken - count)
    return more_often(candidate, count, baseline, count), beside


def _lost(pairs: Iterable[Pair], *, candidate: bool) -> int:
    return sum((pair.candidate if candidate else pair.baseline) is None for pair in pairs)
