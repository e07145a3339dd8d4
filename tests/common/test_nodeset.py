"""Folding of host names."""

import pytest

from nodectl.common.nodeset import fold


@pytest.mark.parametrize(
    ("names", "folded"),
    [
        (["gpu01", "gpu02", "gpu03", "gpu07"], "gpu[01-03,07]"),
        (["gpu2", "gpu1"], "gpu[1-2]"),
        (["a"], "a"),
        (["a", "b"], "a,b"),
        ([], ""),
        (["bad[name", "x"], "x,bad[name"),
        (["a", "gpu[1-99999999]", "@all", "!b", "*"], "a,!b,*,@all,gpu[1-99999999]"),
        (["b", "a\nFAILED"], "b,a\\nFAILED"),
    ],
)
def test_fold(names: list[str], folded: str) -> None:
    assert fold(names) == folded
