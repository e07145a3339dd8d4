"""One of a thing is one, everywhere where numbers are told."""

import pytest

from nodectl.common.counting import counted


@pytest.mark.parametrize(
    ("number", "words", "text"),
    [
        (0, ("host",), "0 hosts"),
        (1, ("host",), "1 host"),
        (2, ("NUMA node",), "2 NUMA nodes"),
        (1, ("switch",), "1 switch"),
        (3, ("switch",), "3 switches"),
        (1, ("port has one", "ports have one"), "1 port has one"),
        (2, ("port has one", "ports have one"), "2 ports have one"),
        (None, ("rank",), "None ranks"),
    ],
)
def test_a_number_with_its_noun(number: object, words: tuple[str, ...], text: str) -> None:
    assert counted(number, *words) == text
