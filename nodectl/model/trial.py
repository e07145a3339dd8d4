"""What an interleaved trial of two tunings measured, before anybody judges it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from nodectl.model.finding import Finding
from nodectl.model.verdict import Crossover, Measured, Summary, Verdict


@dataclass(frozen=True, slots=True)
class Pair:
    """One measurement of each, taken next to each other; None is one that failed."""

    baseline: float | None
    candidate: float | None
    candidate_first: bool = False


@dataclass(frozen=True, slots=True)
class Series(Measured):
    """The pairs of one thing measured, in the order of time.

    `subject` is what was measured where it is more than the probe's name: a collective, a direction, a kernel.
    """

    profile: str
    baseline: str
    probe: str
    unit: str
    pairs: tuple[Pair, ...]
    subject: str = ""
    size_bytes: int | None = None

    @property
    def complete(self) -> tuple[tuple[float, float], ...]:
        """Baseline and candidate of the pairs in which both were measured."""
        return tuple(
            (pair.baseline, pair.candidate)
            for pair in self.pairs
            if pair.baseline is not None and pair.candidate is not None
        )


@dataclass(frozen=True, slots=True)
class Side:
    """One of the tunings of a trial: a profile by name (None: each host's own), overrides over it, and how it is run.

    `run_with` is what no host holds but the launcher decides: `interface`, `rank_order`.
    """

    label: str
    profile: str | None = None
    overrides: Mapping[str, Any] | None = None
    run_with: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Ranked:
    """Hold what a search saw of one candidate: the median gain over its pairs."""

    label: str
    pairs: int
    gain_percent: float | None
    failed: bool = False


@dataclass(frozen=True, slots=True)
class Trial:
    """A trial as it is kept: who against whom, where and how, its pairs, and what these say.

    `hosts` maps each host to the overrides it had of its own. Not `complete` where it ended early: `reason` says why.
    `conditions` are those of the first measurement of each thing on each side.
    """

    id: str
    started: str
    ended: str
    complete: bool
    reason: str
    nodectl: str
    inventory: tuple[str, ...]
    limit: str | None
    hosts: Mapping[str, Mapping[str, Any]]
    baseline: Side
    candidates: tuple[Side, ...]
    probes: tuple[str, ...]
    pairs: int
    options: Mapping[str, object]
    series: tuple[Series, ...] = ()
    verdicts: tuple[Verdict, ...] = ()
    summaries: tuple[Summary, ...] = ()
    crossovers: tuple[Crossover, ...] = ()
    search: tuple[Ranked, ...] = ()
    findings: tuple[Finding, ...] = ()
    conditions: tuple[Mapping[str, object], ...] = ()

    @property
    def judge_by(self) -> str:
        """Return what decides: `speed`, or `joule`."""
        return str(self.options.get("judge_by", "speed"))

    @property
    def by_size(self) -> bool:
        """Return whether each collective and size is judged for itself, over all candidates."""
        return bool(self.options.get("by_size"))
