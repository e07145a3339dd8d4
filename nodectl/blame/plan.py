"""What to measure again because of suspects: themselves, with partners known to be good, beside healthy pairs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from nodectl.blame.model import Cause, HostPair, Reading, Suspect

# a stage measures a suspect path so often, a suspect host with so many others
AGAIN, OTHERS = 3, 2
_MOST_ROUNDS, _MOST_CONTROLS = 8, 16

Round = tuple[list[HostPair], list[HostPair]]


class Plan:
    """The next stage, by what was measured so far and who is suspected of anything."""

    def __init__(self, readings: Sequence[Reading], suspects: Iterable[Suspect]) -> None:
        self._partners_of: dict[str, set[str]] = defaultdict(set)
        self._met: dict[HostPair, int] = defaultdict(int)
        count: dict[str, int] = defaultdict(int)
        first: dict[HostPair, None] = {}
        for each in readings:
            for name, other in (each.link, each.link[::-1]):
                count[name] += 1
                self._partners_of[name].add(other)
                self._met[name, other] += each.stage > 0
            if not each.stage:
                first[min(each.link), max(each.link)] = None
        touched = {name for each in suspects for name in each.cause.hosts}
        self._names = sorted(count)
        # hosts that no suspect touches, those with the most measurements first
        self._good = sorted(set(count) - touched, key=lambda name: (-count[name], name))
        # pairs of them that were measured at first, so that it shows how much has changed since
        self._usual = [link for link in first if not touched & set(link)]

    def rounds(self, causes: Iterable[Cause], turn: int) -> list[Round]:
        """Rounds of what is asked, each with the controls that run beside it; others with each `turn`."""
        wanted = [link for cause in causes for link in self._wanted(cause)]
        asked = packed(wanted)[:_MOST_ROUNDS]
        return [(each, self._controls(each, turn * _MOST_ROUNDS + number)) for number, each in enumerate(asked)]

    @staticmethod
    def asked(rounds: Iterable[Round]) -> set[frozenset[str]]:
        """The pairs that are no controls."""
        return {frozenset(link) for links, _ in rounds for link in links}

    def _wanted(self, cause: Cause) -> list[HostPair]:
        if cause.kind in ("path", "direction"):
            a, b = sorted(cause.hosts)
            # an end with few partners may itself be the cause
            lonely = [end for end in (a, b) if len(self._partners_of[end]) <= OTHERS]
            return [(a, b)] * AGAIN + [link for end in lonely for link in self._partners(end)]
        if cause.kind == "switch":
            outside = [name for name in self._good if name not in cause.hosts]
            inside = cause.hosts[: 2 * OTHERS] if outside else ()
            return [(each, outside[number % len(outside)]) for number, each in enumerate(inside)]
        return self._partners(cause.hosts[0])

    def _partners(self, host: str) -> list[HostPair]:
        """Good hosts for this one: first those not yet met again, and not the same ones for all suspects."""
        others = [name for name in self._good if name != host]
        start = sum(map(ord, host)) % max(1, len(others))
        turned = sorted(others[start:] + others[:start], key=lambda name: self._met[host, name])
        if len(turned) < OTHERS:  # a fleet so small that everybody is near a suspect
            rest = [name for name in self._names if name != host and name not in turned]
            turned += sorted(rest, key=lambda name: self._met[host, name])
        return [(host, name) for name in turned[:OTHERS]]

    def _controls(self, asked: Sequence[HostPair], turn: int) -> list[HostPair]:
        """Healthy pairs of the first look: the same load as then, and what is usual now."""
        busy = {name for pair in asked for name in pair}
        start = 7 * turn % max(1, len(self._usual))
        found: list[HostPair] = []
        for pair in (*self._usual[start:], *self._usual[:start]):
            if len(found) == _MOST_CONTROLS:
                break
            if not busy & set(pair):
                found.append(pair)
                busy |= set(pair)
        return found


def packed(pairs: Sequence[HostPair]) -> list[list[HostPair]]:
    """The pairs in few rounds, each taken into the first one in which both its hosts are free."""
    rounds: list[list[HostPair]] = []
    busy: list[set[str]] = []
    for pair in pairs:
        number = next((number for number, hosts in enumerate(busy) if not hosts & set(pair)), len(rounds))
        if number == len(rounds):
            rounds.append([])
            busy.append(set())
        rounds[number].append(pair)
        busy[number] |= set(pair)
    return rounds
