"""What an interleaved trial of two tunings measured, before anybody judges it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Pair:
    """One measurement of each, taken next to each other; None is one that failed."""

    baseline: float | None
    candidate: float | None
    candidate_first: bool = False


@dataclass(frozen=True, slots=True)
class Series:
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
