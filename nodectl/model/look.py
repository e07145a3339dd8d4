"""One look at the ranks of a running job: where each is, and what that says together."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class RankNow:
    """One rank: where it is, whether that is in a collective, and whether it moved between two looks 2 s apart."""

    host: str
    rank: int
    waits: bool
    doing: str
    call: str
    moved: bool
    cpu: float
    output_age_s: float | None
    stack: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Look:
    """All ranks that were seen, the verdict over them, what else hosts told, and hosts that told nothing."""

    ranks: tuple[RankNow, ...]
    verdict: str
    missing: tuple[int, ...] = ()
    evidence: tuple[str, ...] = ()
    problems: Mapping[str, str] = field(default_factory=dict)
