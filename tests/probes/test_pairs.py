"""Rounds: every pair once, no host twice in a round, as few rounds as can be."""

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from nodectl.probes.pairs import all_pairs, resolved, ring, rounds_for, sample

counts = st.integers(min_value=0, max_value=70)


def flat(rounds: list[list[tuple[int, int]]]) -> list[frozenset[int]]:
    return [frozenset(pair) for each in rounds for pair in each]


def no_host_twice(rounds: list[list[tuple[int, int]]]) -> bool:
    return all(len({host for pair in each for host in pair}) == 2 * len(each) for each in rounds)


@given(counts)
def test_all_pairs_once_in_the_fewest_rounds(count: int) -> None:
    rounds = all_pairs(range(count))
    assert sorted(map(sorted, flat(rounds))) == sorted(map(list, combinations(range(count), 2)))
    assert no_host_twice(rounds)
    assert len(rounds) == (0 if count < 2 else count - 1 + count % 2)


@given(st.integers(min_value=3, max_value=70))
def test_a_ring_takes_two_rounds_or_three(count: int) -> None:
    rounds = ring(range(count))
    assert set(flat(rounds)) == {frozenset((i, (i + 1) % count)) for i in range(count)}
    assert len(flat(rounds)) == count
    assert no_host_twice(rounds)
    assert len(rounds) == 2 + count % 2


@given(st.integers(min_value=2, max_value=300))
def test_a_sample_meets_every_host_about_log_n_times(count: int) -> None:
    rounds = sample(range(count))
    assert no_host_twice(rounds)
    assert len(set(flat(rounds))) == len(flat(rounds))
    assert len(rounds) <= max(1, count.bit_length())
    # a host rests at most once, where the number is odd
    missing = [set(range(count)) - {host for pair in each for host in pair} for each in rounds]
    assert all(len(each) == count % 2 for each in missing)


def test_a_sample_is_the_same_each_time() -> None:
    assert sample(range(40)) == sample(range(40))


def test_modes() -> None:
    assert rounds_for("first", "abc") == [[("a", "b")]]
    assert rounds_for("first", "a") == []
    assert len(rounds_for("auto", range(16))) == 15
    assert len(rounds_for("auto", range(17))) == 5
    assert (resolved("auto", 16), resolved("auto", 17), resolved("ring", 99)) == ("all", "sample", "ring")
    assert rounds_for("ring", "ab") == [[("a", "b")]]
