"""One of a thing is one, everywhere where numbers are told."""

import pytest

from nodectl.common.counting import counted


@pytest.mark.parametrize(
    ("number", "words", "text"),
    [
        (0, ("host",), "0 hosts"),
        (None, ("rank",), "None ranks"),
    ],
)
def test_a_number_with_its_noun(number: object, words: tuple[str, ...], text: str) -> None:
    assert counted(number, *words) == text
