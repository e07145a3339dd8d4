"""The rounds of a fleet's pairs: all, or a sample; no host is in two pairs of a round."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from nodectl.errors import UsageError
from nodectl.model.host import Host
from nodectl.probes.base import ProbeOptions
from nodectl.probes.endpoints import Endpoint

# up to here all pairs are measured by default: 15 rounds
ALL_PAIRS_LIMIT = 16

T = TypeVar("T")
Rounds = list[list[tuple[T, T]]]


class TooFewError(UsageError):
    """A probe needs more hosts or ranks than are selected."""


def more(hosts: Sequence[Host]) -> str:
    """Return how more hosts are selected: beside this machine --limit has none."""
    is_here = any(host.connection == "local" for host in hosts)
    return "name other machines, too: nodectl init DIR --from A,B" if is_here else "widen --limit"


def require_two(hosts: Sequence[Host], probe: str, otherwise: str = "") -> None:
    """Raise TooFewError if there is no pair of hosts; `otherwise` is what else may be done."""
    if len(hosts) < 2:
        remedy = more(hosts) + otherwise
        raise TooFewError(f"the {probe} probe measures between hosts, and only one is selected", remedy)


def planned_rounds(ready: Sequence[Endpoint], options: ProbeOptions) -> tuple[str, Rounds[Endpoint]]:
    """Return the plan, as a word for the operator and as rounds."""
    count = options.rounds if options.rounds is not None else usual_rounds(len(ready))
    if 0 < count < _most_rounds(len(ready)):
        return f"sample of {count}", sampled(ready, count)
    return "all", all_pairs(ready)


def usual_rounds(hosts: int) -> int:
    """Return the rounds of so many hosts if nobody asks for a number: all of few hosts, about log2(n) of many."""
    return _most_rounds(hosts) if hosts <= ALL_PAIRS_LIMIT else (hosts - 1).bit_length()


def _most_rounds(hosts: int) -> int:
    return hosts - 1 + hosts % 2


def all_pairs(items: Sequence[T]) -> Rounds[T]:
    """Every pair once, by the circle method: n-1 rounds for an even n; for an odd one n, a host resting in each."""
    return _circle(items, range(_most_rounds(len(items))))


def _circle(items: Sequence[T], turns: Iterable[int]) -> Rounds[T]:
    """Return the circle method's rounds of these numbers: the first sits still, the others move on by one each turn."""
    first, *others = [*items, *([None] if len(items) % 2 else [])] or [None]
    half = (len(others) + 1) // 2
    rounds = []
    for turn in turns:
        circle = [first, *others[len(others) - turn :], *others[: len(others) - turn]]
        facing = zip(circle[:half], reversed(circle[half:]), strict=True)
        rounds.append([(a, b) for a, b in facing if a is not None and b is not None])
    return [pairs for pairs in rounds if pairs]


def sampled(items: Sequence[T], count: int, seed: int = 0) -> Rounds[T]:
    """So many rounds of all pairs, drawn by chance over shuffled hosts: each meets other partners in each round.

    The same seed gives the same rounds; more rounds than there are give all pairs.
    """
    draw = random.Random(seed)  # noqa: S311 - a sample, not a secret
    shuffled = list(items)
    draw.shuffle(shuffled)
    most = _most_rounds(len(items))
    # the rounds of these numbers alone: of 1,000 hosts there are half a million pairs
    return all_pairs(shuffled) if count >= most else _circle(shuffled, sorted(draw.sample(range(most), count)))


def switch_names(hosts: Iterable[Host]) -> dict[str, str]:
    """Return the one switch beside each host, by its variable nodectl_switch; nothing unless all hosts name one.

    A host with several switches is beside the set of them.
    """
    switches = {}
    for host in hosts:
        value = host.variables.get("nodectl_switch")
        if isinstance(value, Mapping):
            value = list(value.values())
        names = [value] if isinstance(value, str) else list(value) if isinstance(value, list | tuple) else []
        if not names:
            return {}
        switches[host.name] = ", ".join(sorted({str(name) for name in names}))
    return switches
