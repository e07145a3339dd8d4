"""Folding of host names."""

import pytest

from nodectl.common.nodeset import expand, fold, unfolded


@pytest.mark.parametrize(
    ("names", "folded"),
    [(["gpu01", "gpu02", "gpu03", "gpu07"], "gpu[01-03,07]"), ([], ""), (["b", "a\nFAILED"], "b,a\\nFAILED")],
)
def test_fold(names: list[str], folded: str) -> None:
    assert fold(names) == folded


@pytest.mark.parametrize(
    ("pattern", "spelt"),
    [
        ("node[01-03]", "node01,node02,node03"),
        ("gpu[1-2].example.org,head", "gpu1.example.org,gpu2.example.org,head"),
        # Ansible's own
        ("workers[0]", "workers[0]"),
        ("node*:&up", "node*:&up"),
        ("n[1-999999999]", "n[1-999999999]"),
    ],
)
def test_folded_names_are_spelt_out_for_ansible(pattern: str, spelt: str) -> None:
    assert unfolded(pattern) == spelt


def test_a_set_beyond_all_fleets_is_not_spelt_out() -> None:
    assert expand("n[1-99999999]") is None and expand("n[a-b]") is None
    assert expand("a[1-3],b02") == ("a1", "a2", "a3", "b02") and len(expand("a[1-900],b[1-900]") or ()) == 1800
