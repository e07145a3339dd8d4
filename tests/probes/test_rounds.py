"""Rounds in an order: samples, switches, rails; never a host twice at a time."""

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodectl.model.host import Host
from nodectl.probes.rounds import all_pairs, near_before_far, resolved, rounds_for, sample, sampled, switch_names

counts = st.integers(min_value=2, max_value=60)


@given(counts, st.integers(min_value=1, max_value=12), st.integers(min_value=0, max_value=9))
def test_a_sample_meets_distinct_partners(count: int, rounds: int, seed: int) -> None:
    found = sampled(range(count), rounds, seed)
    assert no_host_twice(found)
    assert len(set(flat(found))) == len(flat(found))
    assert len(found) == min(rounds, count - 1 + count % 2)
    assert found == sampled(range(count), rounds, seed)


@given(st.lists(st.integers(min_value=0, max_value=4), min_size=2, max_size=40))
def test_every_pair_once_and_near_ones_first(switches: list[int]) -> None:
    found = near_before_far(range(len(switches)), lambda item: switches[item])
    assert no_host_twice(found)
    assert sorted(map(sorted, flat(found))) == sorted(map(list, combinations(range(len(switches)), 2)))
    near = [{switches[a] == switches[b] for a, b in each} for each in found]
    assert all(len(each) == 1 for each in near)
    assert near == sorted(near, key=lambda each: False in each)


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


@given(st.integers(min_value=2, max_value=300))
def test_a_sample_meets_every_host_about_log_n_times(count: int) -> None:
    rounds = sample(range(count))
    assert no_host_twice(rounds)
    assert len(set(flat(rounds))) == len(flat(rounds))
    assert len(rounds) <= max(1, count.bit_length())
    # a host rests at most once, where the number is odd
    missing = [set(range(count)) - {host for pair in each for host in pair} for each in rounds]
    assert all(len(each) == count % 2 for each in missing)


def test_modes() -> None:
    assert rounds_for("first", "abc") == [[("a", "b")]]
    assert rounds_for("first", "a") == []
    assert len(rounds_for("auto", range(16))) == 15
    assert len(rounds_for("auto", range(17))) == 5
    assert (resolved("auto", 16), resolved("auto", 17), resolved("ring", 99)) == ("all", "sample", "ring")
    assert rounds_for("ring", "ab") == [[("a", "b")]]
