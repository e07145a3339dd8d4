"""Which cause explains slow measurements best: tables of small fleets, and what cannot be told apart."""

import math
from collections.abc import Callable, Mapping
from itertools import permutations

import pytest

from nodectl.probes.blame.fit import Cause, Entry, HostPair, fit

Shares = Callable[[str, str], float]
WOBBLE = (0.0, 0.02, -0.015, 0.01, -0.02)


def measured(names: str, share: Shares) -> dict[HostPair, Entry]:
    """10 units everywhere but for what `share` leaves, and a little disorder."""
    links = permutations(names, 2)
    return {
        link: Entry(math.log(10 * share(*link)) + WOBBLE[number % len(WOBBLE)], 1) for number, link in enumerate(links)
    }


def host(name: str, side: str = "both") -> Cause:
    return Cause("host", (name,), side)


def slow(causes: Mapping[Cause, float]) -> Shares:
    return lambda *link: min((left for cause, left in causes.items() if cause.covers(link)), default=1.0)


@pytest.mark.parametrize(
    ("names", "causes"),
    [
        ("abcdefgh", {}),
        ("abc", {host("a"): 0.5}),
        ("abcd", {host("b", "in"): 0.5}),
        ("abcd", {Cause("path", ("a", "c")): 0.4}),
        ("abcd", {Cause("direction", ("c", "a")): 0.4}),
        ("abcdefgh", {host("a"): 0.5, host("b"): 0.3}),
        ("abcdefgh", {host("a"): 0.6, Cause("path", ("c", "d")): 0.5}),
        ("abcdefgh", {host("h"): 1e-6}),
    ],
)
def test_the_causes_are_found(names: str, causes: Mapping[Cause, float]) -> None:
    found = fit(measured(names, slow(causes)))
    assert {each.cause for each in found.suspects} == set(causes)
    for each in found.suspects:
        assert each.share == pytest.approx(causes[each.cause], rel=0.06)
        assert each.rivals == ()
    assert found.noise < 0.05


SWITCHES = {name: f"leaf{number // 4}" for number, name in enumerate("abcdefghijkl")}


def far(share: float) -> Shares:
    return lambda a, b: share if SWITCHES[a] != SWITCHES[b] else 1.0


def test_a_thinner_way_between_switches_is_no_fault() -> None:
    entries = measured("".join(SWITCHES), far(0.5))
    assert fit(entries, SWITCHES).suspects == ()
