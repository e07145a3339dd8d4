"""What an interleaved trial of two tunings measured, before anybody judges it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from nodectl.model.finding import Finding
from nodectl.model.verdict import Measured, Summary, Verdict


@dataclass(frozen=True, slots=True)
class Pair:
    """One measurement of each, taken next to each other; None is one that failed."""

    baseline: float | None
    candidate: float | None
    candidate_first: bool = False


@dataclass(frozen=True, slots=True)
class Series(Measured):
    """The pairs of one thing measured, in order; `subject` is its collective, direction or kernel."""

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


# in place of a tuning profile: what each host's inventory says
OWN = "own"


@dataclass(frozen=True, slots=True)
class Trial:
    """A trial as it is kept: who against whom, where and how, its pairs, and what these say.

    `baseline` and `candidates` are tuning profiles. `hosts` maps each host to the overrides it had of its own. Not
    `complete` where it ended early: `reason` says why. `conditions` are those of the first measurement of each thing
    on each side.
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
    baseline: str
    candidates: tuple[str, ...]
    probes: tuple[str, ...]
    pairs: int
    options: Mapping[str, object]
    series: tuple[Series, ...] = ()
    verdicts: tuple[Verdict, ...] = ()
    summaries: tuple[Summary, ...] = ()
    findings: tuple[Finding, ...] = ()
    conditions: tuple[Mapping[str, object], ...] = ()

    @property
    def judge_by(self) -> str:
        """Return what decides: `speed`, or `joule`."""
        return str(self.options.get("judge_by", "speed"))
