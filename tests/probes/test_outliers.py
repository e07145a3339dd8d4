"""Who is slower than the others: bad hosts are named, noise is not."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodectl.probes.outliers import slow


def named(*values: float) -> list[str]:
    listed = {f"n{n}": value for n, value in enumerate(values)}
    return list(slow(listed, listed))


@pytest.mark.parametrize(
    ("values", "culprits"),
    [
        ((100.0, 100.0, 100.0), []),
        ((100.0, 50.0, 101.0), ["n1"]),
        ((100.0, 99.0, 40.0, 101.0, 100.0, 39.0, 100.0, 98.0), ["n2", "n5"]),
        ((100.0, 60.0, 140.0, 80.0, 120.0, 55.0), []),
    ],
)
def test_the_slow_ones_are_named(values: tuple[float, ...], culprits: list[str]) -> None:
    assert named(*values) == culprits


def test_of_two_hosts_both_are_shown_and_none_is_blamed() -> None:
    found = slow({"a": 100.0, "b": 60.0}, {"a": 100.0, "b": 60.0})
    assert set(found) == {"a", "b"} and not any(each.culprit for each in found.values())
    assert slow({"a": 100.0, "b": 80.0}, {"a": 100.0, "b": 80.0}) == {}


@given(st.lists(st.floats(97, 103), min_size=2, max_size=12), st.floats(1, 60), st.integers(0, 12))
def test_one_bad_host_among_alike_ones_is_named_alone(good: list[float], bad: float, place: int) -> None:
    at = place % (len(good) + 1)
    assert named(*good[:at], bad, *good[at:]) == [f"n{at}"]
