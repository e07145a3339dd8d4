"""What all the series of a trial say: a verdict each, a summary a profile, and where choices by size cross."""

from __future__ import annotations

from collections.abc import Sequence

from nodectl.model.trial import Series
from nodectl.model.verdict import Crossover, Summary, Verdict
from nodectl.trials.crossover import crossovers
from nodectl.trials.verdict import judge_all, summarise


def judged(series: Sequence[Series]) -> tuple[tuple[Verdict, ...], tuple[Summary, ...], tuple[Crossover, ...]]:
    """Verdicts in the order of the series, and summaries in that in which profiles are first seen."""
    verdicts = judge_all(series)
    profiles = dict.fromkeys(each.profile for each in verdicts)
    summaries = tuple(summarise(name, [each for each in verdicts if each.profile == name]) for name in profiles)
    return verdicts, summaries, crossovers(series)
