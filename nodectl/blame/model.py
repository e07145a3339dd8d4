"""What blame works on: readings between hosts, and the hypotheses that could explain slow ones."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

# who sends, who receives
HostPair = tuple[str, str]

# a reading of nothing at all, as a share of the usual one; a logarithm has no other place for it
_NOTHING = 1e-6
# hosts of which two slow ones are no longer half of the partners of each
_MANY = 8
# hosts whose links to other switches are not one link's fault
_FEW = 6


@dataclass(frozen=True, slots=True)
class Reading:
    """Hold what a receiver got from a sender, more being better.

    `stage` 0 is the first look, later ones measured again; a `control` only shows what is usual in its stage.
    """

    sender: str
    receiver: str
    value: float
    stage: int = 0
    control: bool = False

    @property
    def link(self) -> HostPair:
        """The pair of hosts that was measured: the sender, then the receiver."""
        return self.sender, self.receiver


@dataclass(frozen=True, slots=True)
class Cause:
    """One thing that could be slow: `kind` is host, path, direction or switch; `side` out, in or both of a host."""

    kind: str
    hosts: tuple[str, ...]
    side: str = ""
    name: str = ""

    def covers(self, link: HostPair) -> bool:
        """Return whether a measurement over this link passes through it."""
        sender, receiver = link
        if self.kind == "host":
            return (self.side != "in" and sender == self.hosts[0]) or (self.side != "out" and receiver == self.hosts[0])
        if self.kind == "switch":
            return (sender in self.hosts) != (receiver in self.hosts)
        return link == self.hosts or (self.kind == "path" and link == self.hosts[::-1])


@dataclass(frozen=True, slots=True)
class Suspect:
    """A cause, how far below the usual it is (`effect`, of logarithms), and by how many standard errors.

    `rivals` are other causes that explain the very same measurements: nobody can tell them apart. `ceiling` is what
    other causes leave of its links.
    """

    cause: Cause
    effect: float
    score: float
    links: int
    rivals: tuple[Cause, ...] = ()
    ceiling: float = 0.0

    @property
    def share(self) -> float:
        """Return what it reaches, as a part of what is usual in this fleet."""
        return math.exp(self.effect)


@dataclass(frozen=True, slots=True)
class Entry:
    """A link's logarithm of what was read, the median over so many readings."""

    level: float
    count: int


def entries_of(readings: Iterable[Reading], shifts: Mapping[int, float]) -> dict[HostPair, Entry]:
    """One entry a link, of the readings taken again where there are some: the first look chose the suspects.

    `shifts` is by how much all of a later stage was faster or slower than the first look.
    """
    taken = [reading for reading in readings if not reading.control]
    positive = [reading.value for reading in taken if reading.value > 0]
    least = _NOTHING * median(positive) if positive else 1.0
    first: dict[HostPair, list[float]] = defaultdict(list)
    again: dict[HostPair, list[float]] = defaultdict(list)
    for reading in taken:
        level = math.log(max(reading.value, least)) - shifts.get(reading.stage, 0.0)
        (again if reading.stage else first)[reading.link].append(level)
    return {link: Entry(median(levels), len(levels)) for link, levels in {**first, **again}.items()}


def levels_of(entries: Mapping[HostPair, Entry], switch_of: Mapping[str, str]) -> dict[HostPair, float]:
    """Return what is usual on each link: one level for the fleet, or one below a switch and one between switches.

    The median over hosts of what each does at most links, or at its better ones where it has few partners, so that
    neither a slow path nor some slow hosts move it.
    """
    classes: dict[bool, list[HostPair]] = defaultdict(list)
    for link in entries:
        classes[bool(switch_of) and switch_of[link[0]] != switch_of[link[1]]].append(link)
    whole = _better_level(entries, entries)
    levels = {}
    for links in classes.values():
        # of few hosts, their own level is as likely the fault as the rule
        hosts = {name for link in links for name in link}
        level = _better_level(entries, links) if len(hosts) >= _FEW else whole
        levels.update(dict.fromkeys(links, level))
    return levels


def _better_level(entries: Mapping[HostPair, Entry], links: Iterable[HostPair]) -> float:
    own: dict[str, list[float]] = defaultdict(list)
    for link in links:
        for name in link:
            own[name].append(entries[link].level)
    share = 0.5 if len(own) >= _MANY else 0.75
    return _upper([_upper(levels, share) for levels in own.values()], 0.5)


def _upper(values: Sequence[float], share: float) -> float:
    """The value that at least this share of them does not exceed."""
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]
