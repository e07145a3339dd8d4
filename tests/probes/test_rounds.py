"""Rounds in an order: samples, switches, rails; never a host twice at a time."""

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodectl.model.host import Host
from nodectl.probes.rounds import all_pairs, sampled, switch_names

counts = st.integers(min_value=2, max_value=60)


@given(counts, st.integers(min_value=1, max_value=12), st.integers(min_value=0, max_value=9))
def test_a_sample_meets_distinct_partners(count: int, rounds: int, seed: int) -> None:
    found = sampled(range(count), rounds, seed)
    assert no_host_twice(found)
    assert len(set(flat(found))) == len(flat(found))
    assert len(found) == min(rounds, count - 1 + count % 2)
    assert found == sampled(range(count), rounds, seed)


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"a": {"nodectl_switch": "s1"}, "b": {"nodectl_switch": "s2"}}, {"a": "s1", "b": "s2"}),
        ({"a": {"nodectl_switch": ["s2", "s1"]}}, {"a": "s1, s2"}),
        ({"a": {"nodectl_switch": {"mlx5_0": "s1", "mlx5_1": "s1"}}}, {"a": "s1"}),
        ({"a": {"nodectl_switch": "s1"}, "b": {}}, {}),
        ({"a": {"nodectl_switch": 7}}, {}),
    ],
)
def test_switches_by_variable(variables: dict[str, dict[str, object]], expected: dict[str, str]) -> None:
    assert switch_names(Host(name, name, variables=own) for name, own in variables.items()) == expected


pair_counts = st.integers(min_value=0, max_value=70)


def flat(rounds: list[list[tuple[int, int]]]) -> list[frozenset[int]]:
    return [frozenset(pair) for each in rounds for pair in each]


def no_host_twice(rounds: list[list[tuple[int, int]]]) -> bool:
    return all(len({host for pair in each for host in pair}) == 2 * len(each) for each in rounds)


@given(pair_counts)
def test_all_pairs_once_in_the_fewest_rounds(count: int) -> None:
    rounds = all_pairs(range(count))
    assert sorted(map(sorted, flat(rounds))) == sorted(map(list, combinations(range(count), 2)))
    assert no_host_twice(rounds)
    assert len(rounds) == (0 if count < 2 else count - 1 + count % 2)
