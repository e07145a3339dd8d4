"""Folding of host names."""

import pytest

from nodectl.common.nodeset import fold, unfolded


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


@pytest.mark.parametrize(
    ("pattern", "spelt"),
    [
        ("node[01-03]", "node01,node02,node03"),
        ("node[01-02,05]", "node01,node02,node05"),
        ("all,!node[01-02]", "all,!node01,!node02"),
        ("r[1-2]n[01-02]", "r1n01,r1n02,r2n01,r2n02"),
        ("gpu[1-2].example.org,head", "gpu1.example.org,gpu2.example.org,head"),
        # Ansible's own
        ("workers[0]", "workers[0]"),
        ("workers[0:2]", "workers[0:2]"),
        ("~node0[1-3]", "~node0[1-3]"),
        ("node*:&up", "node*:&up"),
        ("n[1-999999999]", "n[1-999999999]"),
    ],
)
def test_folded_names_are_spelt_out_for_ansible(pattern: str, spelt: str) -> None:
    assert unfolded(pattern) == spelt
