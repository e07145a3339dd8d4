"""What a trial says of a tuning: better, noise or worse, with how much and how sure."""

from dataclasses import dataclass
from enum import StrEnum


class Outcome(StrEnum):
    """`unknown` is no verdict: too little was measured."""

    BETTER = "better"
    NOISE = "noise"
    WORSE = "worse"
    UNKNOWN = "unknown"


# how the subject of a fleet's mean begins; the single paths or hosts that it is of follow it
MEAN_OF = "mean of "


class Measured:
    """The common part of series and verdicts: a fleet's mean, or one of the things measured in the same way."""

    __slots__ = ()
    profile: str
    probe: str
    unit: str
    subject: str
    size_bytes: int | None

    @property
    def is_mean(self) -> bool:
        """Return whether it is the mean of many paths or hosts."""
        return self.subject.startswith(MEAN_OF)

    @property
    def kind(self) -> tuple[object, ...]:
        """Equal where only the path or host differs."""
        return self.profile, self.probe, self.unit, self.size_bytes, self.subject.partition(", ")[2]


@dataclass(frozen=True, slots=True)
class Verdict(Measured):
    """One profile against its baseline, at one size; a gain above 0 is for the better, whatever the unit.

    `noise_percent` is what comparisons of the baseline with itself come to, over as many pairs. `outliers` are pairs
    far from the others, such as one in which something stalled. The numbers are None where `verdict` is unknown.
    `p_value` is corrected for how many were judged beside it. `fails_more`: the candidate failed more often than the
    baseline, by more than chance.
    """

    profile: str
    baseline: str
    probe: str
    subject: str
    size_bytes: int | None
    unit: str
    verdict: Outcome
    gain_percent: float | None = None
    noise_percent: float | None = None
    interval_percent: tuple[float, float] | None = None
    pairs: int = 0
    outliers: int = 0
    failed_baseline: int = 0
    failed_candidate: int = 0
    reason: str = ""
    p_value: float | None = None
    fails_more: bool = False

    @property
    def is_regression(self) -> bool:
        """Worse, or the candidate failed more often than chance allows."""
        return self.verdict is Outcome.WORSE or self.fails_more


@dataclass(frozen=True, slots=True)
class Summary:
    """All verdicts on one profile: better where it wins somewhere and loses nowhere."""

    profile: str
    verdict: Outcome
    wins: tuple[Verdict, ...] = ()
    regressions: tuple[Verdict, ...] = ()
    undecided: tuple[Verdict, ...] = ()
