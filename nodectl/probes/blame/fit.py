"""A fit of hosts, paths and directions that explain the slow measurements of a fleet, and how certainly.

A link is as fast as the slowest thing on it, so causes do not add up: each is a ceiling. They are accepted one after
the other, first the one that explains most, until what is left looks like noise; the noise is that of the rest.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
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
    levels_of_host: dict[str, list[float]] = defaultdict(list)
    for link in links:
        for name in link:
            levels_of_host[name].append(entries[link].level)
    share = 0.5 if len(levels_of_host) >= _MANY_HOSTS else 0.75
    return _upper([_upper(levels, share) for levels in levels_of_host.values()], 0.5)


def _upper(values: Sequence[float], share: float) -> float:
    """Return the value that at least this share of them does not exceed."""
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


# standard errors below the usual from which on something is measured again
SUSPECT_SCORE = 3.0
# and by how much at least (logarithm): less is nobody's business
SUSPECT_EFFECT = 0.07
# until there are many measurements, their noise is taken to be about so much
_PRIOR_NOISE, _PRIOR_COUNT = 0.05, 4
_LEAST_NOISE = 0.003
# a median is less certain than a mean
MEDIAN_ERROR = 1.2533
# what part of a cause's links has to be slow, where they are many; of few, all
_SLOW_PART, _MANY = 0.7, 5
_MOST_CAUSES = 256


@dataclass(frozen=True, slots=True)
class Fit:
    """Hold what is usual on each link, the noise around it (both of logarithms), and the suspects, strongest first.

    `error` is how far off the usual may be itself.
    """

    usual: Mapping[HostPair, float]
    noise: float
    suspects: tuple[Suspect, ...]
    error: float


def fit(entries: Mapping[HostPair, Entry], switch_of: Mapping[str, str] | None = None) -> Fit:
    """Return the causes that explain the measurements best; `switch_of` names the switch beside each host."""
    if not entries:
        return Fit({}, _PRIOR_NOISE, (), 0.0)
    switches = switch_of or {}
    usual = levels_of(entries, switches)
    noise = _noise([entries[link].level - usual[link] for link in entries], above=True)
    search = _Search(entries, usual, noise, switches)
    suspects = search.run()
    rest = search.unexplained()
    shift = median(rest) if rest else 0.0
    usual = {link: level + shift for link, level in usual.items()}
    noise = _noise([residual - shift for residual in rest])
    return Fit(usual, noise, tuple(suspects), MEDIAN_ERROR * noise / math.sqrt(max(1, len(rest))))


def strictness(count: int) -> float:
    """Return by how much more a threshold asks for where the noise is known from few measurements only."""
    return 1 + 4 / max(1, count)


def _noise(residuals: Sequence[float], *, above: bool = False) -> float:
    """Return the standard deviation, by the median; `above`: of those that are faster than usual, as no fault is."""
    deviations = [abs(residual) for residual in residuals if residual >= 0 or not above]
    spread = robust_deviation(deviations) if deviations else _PRIOR_NOISE
    square = (len(deviations) * spread**2 + _PRIOR_COUNT * _PRIOR_NOISE**2) / (len(deviations) + _PRIOR_COUNT)
    return max(_LEAST_NOISE, math.sqrt(square))


class _Search:
    """One pass: accepts the best cause, lowers the ceiling of its links, and looks again."""

    def __init__(
        self,
        entries: Mapping[HostPair, Entry],
        usual: Mapping[HostPair, float],
        noise: float,
        switch_of: Mapping[str, str],
    ) -> None:
        self.entries, self.noise = entries, noise
        self.below = {link: entries[link].level - usual[link] for link in entries}
        self.ceiling = dict.fromkeys(entries, 0.0)
        self.out: dict[str, list[HostPair]] = defaultdict(list)
        self.into: dict[str, list[HostPair]] = defaultdict(list)
        for link in entries:
            self.out[link[0]].append(link)
            self.into[link[1]].append(link)
        self.middles: dict[str, tuple[float, float]] = {
            name: (self._middle(self.out[name]), self._middle(self.into[name]))
            for name in sorted({name for link in entries for name in link})
        }
        self.members: dict[str, list[str]] = defaultdict(list)
        for name in self.middles if switch_of else ():
            self.members[switch_of[name]].append(name)
        self.score = SUSPECT_SCORE * strictness(len(entries))

    def run(self) -> list[Suspect]:
        """Return the causes, in the order in which they were accepted."""
        accepted: list[Suspect] = []
        judged = {cause: judgement for cause in self._candidates() if (judgement := self._judge(cause)) is not None}
        touching: dict[HostPair, list[Cause]] = defaultdict(list)
        for cause, (_, _, links) in judged.items():
            for link in links:
                touching[link].append(cause)
        while judged and len(accepted) < _MOST_CAUSES:
            _, best, links = max(judged.values(), key=lambda item: (item[0], item[1].cause.kind == "host"))
            covered = self._links(best.cause)
            near = {cause: None for link in covered for cause in touching[link] if cause in judged}
            same = frozenset(links)
            rivals = [cause for cause in near if cause != best.cause and frozenset(judged[cause][2]) == same]
            accepted.append(replace(best, rivals=tuple(rivals)))
            for link in covered:
                self.ceiling[link] = min(self.ceiling[link], best.effect)
            del judged[best.cause]
            # ceilings only fall: what was not worth a look before is not so now
            for cause in near:
                judgement = self._judge(cause) if cause in judged else None
                if judgement is None:
                    judged.pop(cause, None)
                else:
                    judged[cause] = judgement
        return sorted(accepted, key=lambda suspect: -suspect.score)

    def unexplained(self) -> list[float]:
        """Return how far the links without a cause are from the usual."""
        return [below for link, below in self.below.items() if self.ceiling[link] == 0.0]

    def _candidates(self) -> Iterator[Cause]:
        """Yield what is worth a closer look: hosts and links that are slow in the middle."""
        for host, (out, into) in self.middles.items():
            yield from (Cause("host", (host,), side) for side, middle in (("out", out), ("in", into)) if _slow(middle))
            if _slow(out, into) and self.out[host] and self.into[host]:
                yield Cause("host", (host,), "both")
        for link, below in self.below.items():
            if _slow(below):
                yield Cause("direction", link)
                back = link[::-1]
                if back in self.below and (link[0] < link[1] or not _slow(self.below[back])):
                    yield Cause("path", (min(link), max(link)))
        # of two switches, the path between them is all that could be slow, and that is its usual level
        if len(self.members) > 2:
            yield from (Cause("switch", tuple(hosts), name=name) for name, hosts in self.members.items())

    def _judge(self, cause: Cause) -> tuple[float, Suspect, list[HostPair]] | None:
        """Return how much of the slowness the cause explains; None if it is not clearly slow."""
        links = self._links(cause)
        if cause.kind in ("host", "switch"):
            # what another cause has slowed down says nothing of this one
            links = [link for link in links if self.ceiling[link] == 0.0]
        if not links or (cause.kind in ("path", "switch") and len(links) < 2):
            return None
        lower = [self.below[link] - self.ceiling[link] for link in links]
        step = median(lower)
        if step > -SUSPECT_EFFECT or not _together(lower, step):
            return None
        score = -step / self._error(links)
        if score < self.score:
            return None
        gain = sum(level**2 - (level - step) ** 2 for level in lower)
        ceiling = median(self.ceiling[link] for link in links)
        return gain, Suspect(cause, ceiling + step, score, len(links), ceiling=ceiling), links

    def _links(self, cause: Cause) -> list[HostPair]:
        if cause.kind == "host":
            (host,) = cause.hosts
            return (self.out[host] if cause.side != "in" else []) + (self.into[host] if cause.side != "out" else [])
        if cause.kind == "switch":
            outward = [link for host in cause.hosts for link in self.out[host] + self.into[host]]
            return [link for link in outward if cause.covers(link)]
        both = (cause.hosts, cause.hosts[::-1]) if cause.kind == "path" else (cause.hosts,)
        return [(a, b) for a, b in both if (a, b) in self.entries]

    def _error(self, links: Sequence[HostPair]) -> float:
        """Return the standard error of the middle of these links."""
        error = self.noise * math.sqrt(sum(1 / self.entries[link].count for link in links)) / len(links)
        return error * MEDIAN_ERROR if len(links) > 2 else error

    def _middle(self, links: Sequence[HostPair]) -> float:
        return median(self.below[link] for link in links) if links else 0.0


def _slow(*levels: float) -> bool:
    return min(levels) < -SUSPECT_EFFECT


def _together(lower: Sequence[float], step: float) -> bool:
    """Return whether enough of them are slow: a host with one slow path is no slow host."""
    slow = sum(level < step / 2 for level in lower)
    return slow >= (_SLOW_PART * len(lower) if len(lower) >= _MANY else len(lower))
