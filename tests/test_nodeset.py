"""Folding of host names."""

import pytest

from nodectl.nodeset import fold


@pytest.mark.parametrize(
    ("names", "folded"),
    [
        (["gpu01", "gpu02", "gpu03", "gpu07"], "gpu[01-03,07]"),
        (["gpu2", "gpu1"], "gpu[1-2]"),
        (["a"], "a"),
        (["a", "b"], "a,b"),
        ([], ""),
        (["bad[name", "x"], "bad[name,x"),
    ],
)
def test_fold(names: list[str], folded: str) -> None:
    assert fold(names) == folded
