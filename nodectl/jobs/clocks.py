"""How far the clocks of a job's hosts are apart, from what each saw of the others' heartbeats, and how sure that is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

# a rank's end is known a moment after it happened
_SEEN_S = 0.1


@dataclass(frozen=True, slots=True)
class Clocks:
    """By rank of host, seconds by which its clock leads the first host's, and the most that this may be wrong."""

    leads_s: Mapping[int, tuple[float, float]]

    def correct(self, rank: int, time: float) -> float:
        """A host's time as the first host's clock has it."""
        return time - self.leads_s.get(rank, (0.0, 0.0))[0]

    def uncertainty_s(self, one: int, other: int) -> float:
        """Two events of these hosts that are nearer to each other cannot be put in order."""
        if one == other:
            return _SEEN_S
        return _SEEN_S + sum(self.leads_s.get(rank, (0.0, 0.0))[1] for rank in (one, other))


def compare(ways: Mapping[int, Mapping[str, Any]]) -> Clocks:
    """From each host's record of the least that messages of each other one seemed to travel, by its own clock.

    What one sees is the way plus its lead, what the other sees the way less that lead: half the difference is the lead,
    half the sum its uncertainty. A host without a way to the first goes by one that has.
    """
    leads: dict[int, tuple[float, float]] = {}
    waiting = sorted(ways)
    if waiting:
        leads[waiting.pop(0)] = (0.0, 0.0)
    for _ in range(len(waiting)):
        for rank in list(waiting):
            found = [_against(ways, rank, known, leads[known]) for known in leads]
            best = min((lead for lead in found if lead is not None), key=lambda lead: lead[1], default=None)
            if best is not None:
                leads[rank] = best
                waiting.remove(rank)
    return Clocks(leads)


def _against(
    ways: Mapping[int, Mapping[str, Any]], rank: int, known: int, lead: tuple[float, float]
) -> tuple[float, float] | None:
    here, there = ways[rank].get(str(known)), ways[known].get(str(rank))
    if not isinstance(here, (int, float)) or not isinstance(there, (int, float)):
        return None
    return lead[0] + (here - there) / 2, lead[1] + abs(here + there) / 2
