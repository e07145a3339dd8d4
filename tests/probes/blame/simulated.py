"""A fleet with faults that measures like a real one: each link as fast as the slowest thing on it, and noise."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from nodectl.probes.blame.fit import Cause, HostPair, Reading
from nodectl.probes.blame.inquiry import Inquiry, Verdict
from nodectl.probes.rounds import all_pairs, sampled

KINDS = ("none", "host", "host out", "host in", "path", "direction", "two")


@dataclass
class Fleet:
    """`faults` maps a cause to the part of the speed that is left; `dead` hosts answer nothing."""

    names: tuple[str, ...]
    noise: float
    draw: random.Random
    faults: dict[Cause, float] = field(default_factory=dict)
    dead: frozenset[str] = frozenset()
    measured: int = 0
    # hosts of one kind differ a little for good
    uneven: dict[str, float] = field(default_factory=dict)
    # a burst elsewhere makes so many of the readings much slower
    bursts: float = 0.005
    # pairs that cannot be measured
    apart: frozenset[HostPair] = frozenset()

    def measure(self, rounds: Iterable[Sequence[HostPair]]) -> list[Reading]:
        """Both directions of each pair."""
        readings = []
        for pairs in rounds:
            self.measured += 1
            for a, b in pairs:
                if not self.dead & {a, b} and not self.apart & {(a, b), (b, a)}:
                    readings += [self.read(a, b), self.read(b, a)]
        return readings

    def read(self, sender: str, receiver: str) -> Reading:
        """One run."""
        link = (sender, receiver)
        left = min((share for cause, share in self.faults.items() if cause.covers(link)), default=1.0)
        left *= self.uneven.get(sender, 1.0) * self.uneven.get(receiver, 1.0)
        disturbed = self.draw.uniform(0.3, 0.9) if self.draw.random() < self.bursts else 1.0
        return Reading(sender, receiver, 9.4 * left * disturbed * max(0.05, self.draw.gauss(1.0, self.noise)))


@dataclass(frozen=True)
class Case:
    """One scenario and what came of it."""

    kind: str
    fleet: Fleet
    verdict: Verdict

    @property
    def right(self) -> bool:
        """Exactly the faults, of the right kind and side, and nobody else."""
        return {each.suspect.cause for each in self.verdict.blamed} == set(self.fleet.faults)

    @property
    def false_blame(self) -> bool:
        """Somebody healthy was blamed."""
        guilty = {name for cause in self.fleet.faults for name in cause.hosts}
        return any(not set(each.suspect.cause.hosts) <= guilty for each in self.verdict.blamed)


def scenario(kind: str, count: int, rounds: int | None, seed: int) -> Case:
    """A fleet of so many hosts with a fault of this kind, measured in all rounds or so many, and judged."""
    draw = random.Random(seed)
    names = tuple(f"gpu{number:04}" for number in range(1, count + 1))
    plan = all_pairs(names) if rounds is None else sampled(names, rounds, seed)
    fleet = Fleet(names, draw.uniform(0.01, 0.05), draw)
    fleet.uneven = {name: draw.gauss(1.0, 0.005) for name in names}
    if draw.random() < 0.25 and count > 3:
        fleet.dead = frozenset(draw.sample(names, max(1, count // 100)))
    # a path that nobody measures shows nothing
    links = [pair for each in plan for pair in each if not fleet.dead & set(pair)]
    wanted = [draw.choice(KINDS[1:-1]) for _ in range(2)] if kind == "two" else [kind] if kind != "none" else []
    taken: set[str] = set(fleet.dead)
    for each in wanted:
        cause = _cause(each, draw, names, links, taken)
        taken |= set(cause.hosts)
        fleet.faults[cause] = 1 - draw.uniform(0.2, 0.95)
    return Case(kind, fleet, investigate(fleet, plan))


def investigate(fleet: Fleet, plan: Iterable[Sequence[HostPair]], inquiry: Inquiry | None = None) -> Verdict:
    """First look, then as often as the inquiry asks."""
    inquiry = inquiry or Inquiry()
    inquiry.add(fleet.measure(plan))
    while rounds := inquiry.next_rounds():
        inquiry.add(fleet.measure(rounds))
    return inquiry.verdict()


def _cause(kind: str, draw: random.Random, names: Sequence[str], links: Sequence[HostPair], taken: set[str]) -> Cause:
    if kind in ("path", "direction"):
        pair = draw.choice([link for link in links if not taken & set(link)] or list(links))
        turned = pair if draw.random() < 0.5 else pair[::-1]
        return Cause("direction", turned) if kind == "direction" else Cause("path", (min(pair), max(pair)))
    host = draw.choice([name for name in names if name not in taken])
    return Cause("host", (host,), kind.partition(" ")[2] or "both")
