"""What traces of a job's ranks tell: where the time of each step went, and which rank the others wait for."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class StepTime:
    """One step of a rank; `parts_us` parts its time, each moment once; `collectives_us` is also beside computing."""

    number: int
    step_us: float
    collectives_us: float
    parts_us: Mapping[str, float]

    @property
    def own_us(self) -> float:
        """Return it without the time in which nothing but a collective ran: what the rank itself needs."""
        return self.step_us - self.parts_us.get("communication", 0.0)


@dataclass(frozen=True, slots=True)
class RankTrace:
    """A rank's trace; `device` is gpu or cpu, empty with a `problem`. `file` lies in the job's folder on the host."""

    host: str
    rank: int
    device: str = ""
    steps: tuple[StepTime, ...] = ()
    problem: str = ""
    file: str = ""
    size_bytes: int = 0


@dataclass(frozen=True, slots=True)
class RankFigures:
    """Means over a rank's steps as shares of its step time, but `step_ms`, which is their median.

    `communication` counts all collectives; `exposed` is what of it no computing hides, and `waiting` what of that the
    rank with the least of it did not need: the time others took to come. `idle` is the rest: neither computing, copies,
    data loading nor collectives.
    """

    host: str
    rank: int
    device: str
    steps: int
    step_ms: float
    compute: float
    copies: float
    loading: float
    communication: float
    exposed: float
    waiting: float
    idle: float

    @property
    def overlap(self) -> float | None:
        """The share of its communication that computing hides; None without communication."""
        return 1 - min(1.0, self.exposed / self.communication) if self.communication > 0 else None


@dataclass(frozen=True, slots=True)
class SlowRank:
    """The rank the others wait for: a step's own time beyond theirs, and in which part most of that lies."""

    host: str
    rank: int
    by_ms: float
    by_share: float
    part: str
    part_ms: float
    others_part_ms: float


@dataclass(frozen=True, slots=True)
class TraceReport:
    """All ranks' figures, the slowest where one stands out, and `problems`: by rank or host, why there is no trace."""

    ranks: tuple[RankFigures, ...]
    slowest: SlowRank | None = None
    problems: Mapping[str, str] = field(default_factory=dict)
