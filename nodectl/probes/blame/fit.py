"""A fit of hosts, paths and directions that explain the slow measurements of a fleet, and how certainly.

A link is as fast as the slowest thing on it, so each link has one cause. Causes are accepted one after the other, first
the one that explains most, until the rest looks like noise; the noise is that of the rest.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median

from nodectl.common.statistics import robust_deviation

# who sends, who receives
HostPair = tuple[str, str]

# a reading of nothing at all, as a share of the usual one; a logarithm has no other place for it
_NOTHING = 1e-6
# hosts of which two slow ones are no longer half of the partners of each
_MANY_HOSTS = 8
# hosts whose links to other switches are not one link's fault
_FEW = 6
# standard errors below the usual from which on something is measured again
_SUSPECT_SCORE = 3.0
# and by how much at least (logarithm): less is nobody's business
_SUSPECT_EFFECT = 0.07
# until there are many measurements, their noise is taken to be about so much
_PRIOR_NOISE, _PRIOR_COUNT = 0.05, 4
_LEAST_NOISE = 0.003
# a median is less certain than a mean
MEDIAN_ERROR = 1.2533
# what part of a cause's links has to be slow, where they are many; of few, all
_SLOW_PART, _MANY = 0.7, 5
_MOST_CAUSES = 256


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

    `rivals` are other causes that explain the very same measurements: nobody can tell them apart.
    """

    cause: Cause
    effect: float
    score: float
    links: int
    rivals: tuple[Cause, ...] = ()

    @property
    def share(self) -> float:
        """Return what it reaches, as a part of what is usual in this fleet."""
        return math.exp(self.effect)


@dataclass(frozen=True, slots=True)
class Entry:
    """A link's logarithm of what was read, the median over so many readings."""

    level: float
    count: int


@dataclass(frozen=True, slots=True)
class Fit:
    """Hold what is usual on each link, the noise around it (both of logarithms), and the suspects, strongest first.

    `error` is how far off the usual may be itself.
    """

    usual: Mapping[HostPair, float]
    noise: float
    suspects: tuple[Suspect, ...]
    error: float


def entries_of(readings: Iterable[Reading], shifts: Mapping[int, float]) -> dict[HostPair, Entry]:
    """One entry a link, of the readings taken again if there are some: the first look chose the suspects.

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


def strictness(count: int) -> float:
    """Return by how much more a threshold asks for where the noise is known from few measurements only."""
    return 1 + 4 / max(1, count)


def fit(entries: Mapping[HostPair, Entry], switch_of: Mapping[str, str] | None = None) -> Fit:
    """Return the causes that explain the measurements best; `switch_of` names the switch beside each host."""
    if not entries:
        return Fit({}, _PRIOR_NOISE, (), 0.0)
    usual = _levels(entries, switch_of or {})
    below = {link: entry.level - usual[link] for link, entry in entries.items()}
    # no fault makes a link faster than usual
    noise = _noise([level for level in below.values() if level >= 0])
    causes = _candidates(below, switch_of or {})
    unexplained = dict.fromkeys(entries)
    accepted: list[Suspect] = []
    while len(accepted) < _MOST_CAUSES:
        judged = {}
        for cause, covered in causes.items():
            links = [link for link in covered if link in unexplained]
            if suspect := _judge(cause, links, entries, below, noise):
                judged[cause] = suspect, links
        if not judged:
            break
        best, links = max(
            judged.values(),
            key=lambda item: (_gain([below[link] for link in item[1]]), item[0].cause.kind == "host"),
        )
        same = [cause for cause, (_, others) in judged.items() if cause != best.cause and {*others} == {*links}]
        accepted.append(replace(best, rivals=tuple(same)))
        for link in links:
            del unexplained[link]
        # fewer links are left to each cause: one that was not worth a look before is not so now
        causes = {cause: causes[cause] for cause in judged if cause != best.cause}
    rest = [below[link] for link in unexplained]
    shift = median(rest) if rest else 0.0
    noise = _noise([level - shift for level in rest])
    return Fit(
        {link: level + shift for link, level in usual.items()},
        noise,
        tuple(sorted(accepted, key=lambda suspect: -suspect.score)),
        MEDIAN_ERROR * noise / math.sqrt(max(1, len(rest))),
    )


def _levels(entries: Mapping[HostPair, Entry], switch_of: Mapping[str, str]) -> dict[HostPair, float]:
    """Return what is usual on each link: one level for the fleet, or one below a switch and one between switches."""
    classes: dict[bool, list[HostPair]] = defaultdict(list)
    for link in entries:
        classes[bool(switch_of) and switch_of[link[0]] != switch_of[link[1]]].append(link)
    levels = {}
    for links in classes.values():
        # of few hosts, their own level is as likely the fault as the rule
        is_few = len({name for link in links for name in link}) < _FEW
        levels.update(dict.fromkeys(links, _better_level(entries, entries if is_few else links)))
    return levels


def _better_level(entries: Mapping[HostPair, Entry], links: Collection[HostPair]) -> float:
    """Return the median over hosts of the level at most of their links, or at their better ones in a small fleet."""
    levels_of_host: dict[str, list[float]] = defaultdict(list)
    for link in links:
        for name in link:
            levels_of_host[name].append(entries[link].level)
    share = 0.5 if len(levels_of_host) >= _MANY_HOSTS else 0.75
    tops = sorted(sorted(levels)[int(share * len(levels))] for levels in levels_of_host.values())
    return tops[len(tops) // 2]


def _noise(residuals: Sequence[float]) -> float:
    spread = robust_deviation(residuals) if residuals else _PRIOR_NOISE
    square = (len(residuals) * spread**2 + _PRIOR_COUNT * _PRIOR_NOISE**2) / (len(residuals) + _PRIOR_COUNT)
    return max(_LEAST_NOISE, math.sqrt(square))


def _candidates(below: Mapping[HostPair, float], switch_of: Mapping[str, str]) -> dict[Cause, list[HostPair]]:
    causes: dict[Cause, list[HostPair]] = defaultdict(list)
    sides: dict[str, set[str]] = defaultdict(set)
    members: dict[str, list[str]] = defaultdict(list)
    for link, level in below.items():
        for name, side in zip(link, ("out", "in"), strict=True):
            causes[Cause("host", (name,), side)].append(link)
            causes[Cause("host", (name,), "both")].append(link)
            sides[name].add(side)
        if level < -_SUSPECT_EFFECT:
            causes[Cause("direction", link)] = [link]
            if link[::-1] in below:
                causes[Cause("path", (min(link), max(link)))] = [link, link[::-1]]
    for name, known in sides.items():
        if len(known) < 2:
            del causes[Cause("host", (name,), "both")]
        if switch_of:
            members[switch_of[name]].append(name)
    # of two switches, the path between them is all that could be slow, and that is its usual level
    for switch, names in members.items() if len(members) > 2 else ():
        cause = Cause("switch", tuple(sorted(names)), name=switch)
        causes[cause] = [link for link in below if cause.covers(link)]
    return causes


def _judge(
    cause: Cause,
    links: Sequence[HostPair],
    entries: Mapping[HostPair, Entry],
    below: Mapping[HostPair, float],
    noise: float,
) -> Suspect | None:
    if not links or (cause.kind in ("path", "switch") and len(links) < 2):
        return None
    lower = [below[link] for link in links]
    step = median(lower)
    # a host with one slow path is no slow host
    slow = sum(level < step / 2 for level in lower)
    if step > -_SUSPECT_EFFECT or slow < (_SLOW_PART * len(lower) if len(lower) >= _MANY else len(lower)):
        return None
    error = noise * math.sqrt(sum(1 / entries[link].count for link in links)) / len(links)
    score = -step / (error * MEDIAN_ERROR if len(links) > 2 else error)
    return None if score < _SUSPECT_SCORE * strictness(len(entries)) else Suspect(cause, step, score, len(links))


def _gain(lower: Sequence[float]) -> float:
    """Return how much of the slowness of some links is explained if they have one cause."""
    step = median(lower)
    return sum(level**2 - (level - step) ** 2 for level in lower)
