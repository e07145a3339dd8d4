"""Rounds in an order: samples, switches, rails; never a host twice at a time."""

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodectl.blame.plan import packed
from nodectl.probes.rounds import near_before_far, sampled, switch_names
from tests.probes.test_pairs import flat, no_host_twice

counts = st.integers(min_value=2, max_value=60)


@given(counts, st.integers(min_value=1, max_value=12), st.integers(min_value=0, max_value=9))
def test_a_sample_meets_distinct_partners(count: int, rounds: int, seed: int) -> None:
    found = sampled(range(count), rounds, seed)
    assert no_host_twice(found)
    assert len(set(flat(found))) == len(flat(found))
    assert len(found) == min(rounds, count - 1 + count % 2)
    assert found == sampled(range(count), rounds, seed)


def test_another_seed_draws_another_sample() -> None:
    assert sampled(range(100), 5, seed=1) != sampled(range(100), 5, seed=2)


@given(st.lists(st.integers(min_value=0, max_value=4), min_size=2, max_size=40))
def test_every_pair_once_and_near_ones_first(switches: list[int]) -> None:
    found = near_before_far(range(len(switches)), lambda item: switches[item])
    assert no_host_twice(found)
    assert sorted(map(sorted, flat(found))) == sorted(map(list, combinations(range(len(switches)), 2)))
    near = [{switches[a] == switches[b] for a, b in each} for each in found]
    assert all(len(each) == 1 for each in near)
    assert near == sorted(near, key=lambda each: False in each)


@pytest.mark.parametrize(("switches", "size"), [(1, 8), (2, 8), (4, 4), (8, 2)])
def test_equal_switches_cost_no_round_more(switches: int, size: int) -> None:
    hosts = range(switches * size)
    assert len(near_before_far(hosts, lambda item: item // size)) == len(hosts) - 1


def test_packed_pairs_share_rounds_where_they_can() -> None:
    found = packed([("a", "b"), ("c", "d"), ("a", "c"), ("b", "d"), ("a", "b")])
    assert found == [[("a", "b"), ("c", "d")], [("a", "c"), ("b", "d")], [("a", "b")]]


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
    assert switch_names(variables) == expected
