"""What of a space changes nothing is not tried: values that hosts keep, options that do nothing beside the others."""

from collections.abc import Mapping
from typing import Any

import pytest

from nodectl.checks.kernel.settings import is_held
from nodectl.model.host import Host
from nodectl.transport.router import LocalTransport
from nodectl.trials.effective import effective, keys_of, meaningful, read_live, values_of
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


@pytest.mark.parametrize(
    ("value", "in_force", "live", "labels"),
    [
        (BIG, (), {"a": {RMEM: ("4096 131072 6291456", True)}}, 1),
        (BIG, (), {"a": {RMEM: ("4096 131072 6291456", False)}}, 0),
        (BIG, (), {"a": {RMEM: ("4096 131072 33554432", True)}, "b": {RMEM: ("4096 131072 6291456", True)}}, 1),
        # what the baseline sets can be lowered again, and so can what the space says may be
        (BIG, (RMEM,), {"a": {RMEM: ("4096 131072 33554432", True)}}, 1),
        ({"value": BIG, "never_lower": False}, (), {"a": {RMEM: ("4096 131072 33554432", True)}}, 1),
        ({"value": BIG, "never_lower": False}, (), {"a": {RMEM: (BIG, True)}}, 0),
        (BIG, (), {"a": {}}, 1),
        (BIG, (), {}, 1),
    ],
)
def test_what_nobody_knows_to_be_idle_is_tried(value: Any, in_force: Any, live: Any, labels: int) -> None:
    kept, reasons = effective(sides({"sysctl": {RMEM: [None, value]}}), in_force, live, is_held)
    assert (len(kept), len(reasons)) == (labels, 1 - labels)


def test_the_values_of_a_real_host_are_read() -> None:
    host = Host("here", "localhost")
    live = read_live(LocalTransport(), [host], ["kernel.ostype", "kernel.no_such_key"], 2)
    assert live == {"here": {"kernel.ostype": ("Linux", False)}}


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


def test_a_preset_may_set_what_an_option_needs() -> None:
    kept, reasons = meaningful(sides({"training": {"prefetch": [None, 4]}}), ("--preset=article-1",))
    assert len(kept) == 1 and not reasons


def test_a_command_line_is_read_by_name() -> None:
    words = ["--workers", "2", "--lr=0.1", "--bucket-view", "--no-error-feedback", "--compress=none"]
    read = {"workers": 2, "lr": 0.1, "bucket_view": True, "error_feedback": False, "compress": "none"}
    assert values_of(words) == read
