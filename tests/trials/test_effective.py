"""What of a space changes nothing is not tried: values that hosts keep, options that do nothing beside the others."""

from collections.abc import Mapping
from typing import Any

import pytest

from nodectl.checks.kernel.settings import is_held
from nodectl.trials.effective import effective, keys_of, meaningful
from nodectl.trials.sides import side_of, sides_of_space
from nodectl.trials.space import space_of

RMEM, WMEM = "net.ipv4.tcp_rmem", "net.core.wmem_max"
BIG = "4096 131072 16777216"


def sides(document: Mapping[str, Any]) -> list[Any]:
    return list(sides_of_space(space_of(document, "space"), side_of("own")))


def test_a_winner_is_not_named_by_a_value_that_every_host_keeps() -> None:
    tried = sides({"sysctl": {RMEM: [None, BIG], WMEM: [None, 8388608]}})
    assert keys_of(tried) == (WMEM, RMEM)
    live = {"a": {RMEM: ("4096 131072 33554432", True), WMEM: ("212992", True)}}
    kept, reasons = effective(tried, (), {**live, "b": live["a"]}, is_held)
    assert [(side.label, side.overrides) for side in kept] == [(f"{WMEM}=8388608", {"sysctl": {WMEM: 8388608}})]
    assert reasons == [f"left out: {RMEM}={BIG}: every host has 4096 131072 33554432 already, which it keeps"]


OPTIONS = {
    "training": {"compress": [None, "bf16", "powersgd"], "compress_rank": [None, 16], "bucket_view": [None, False]}
}


@pytest.mark.parametrize(
    ("arguments", "labels"),
    [
        ((), ["compress=bf16", "compress=powersgd", "compress=powersgd; compress_rank=16"]),
        (("--compress", "powersgd"), ["compress=bf16", "compress_rank=16"]),
    ],
)
def test_an_option_that_does_nothing_is_not_tried(arguments: tuple[str, ...], labels: list[str]) -> None:
    kept, reasons = meaningful(sides(OPTIONS), arguments)
    assert sorted(side.label for side in kept) == sorted(labels)
    assert "left out: bucket_view=False: it is the baseline" in reasons
    assert all(reason.startswith("left out: ") for reason in reasons)
