"""Search spaces: read, refused with their path, enumerated and sampled."""

from pathlib import Path
from typing import Any

import pytest

from nodectl.errors import ProfileError
from nodectl.profiles.resolve import resolve
from nodectl.trials.space import flag_words, read_space, space_of

RMEM, WMEM = "net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem"
BIG = "4096 131072 16777216"


def test_every_combination_once_in_a_fixed_order(tmp_path: Path) -> None:
    path = tmp_path / "space.yml"
    path.write_text(
        f"""
sysctl:
  {RMEM}: [null, "{BIG}"]
together:
  streams:
    - {{}}
    - nccl: {{NCCL_NSOCKS_PERTHREAD: 4, NCCL_SOCKET_NTHREADS: 2}}
    - nccl: {{NCCL_NSOCKS_PERTHREAD: 8, NCCL_SOCKET_NTHREADS: 2}}
"""
    )
    space = read_space(path)
    assert space.combinations == 6
    found = list(space)
    assert [each.overrides for each in found] == [
        {"nccl": {"NCCL_NSOCKS_PERTHREAD": 4, "NCCL_SOCKET_NTHREADS": 2}},
        {"nccl": {"NCCL_NSOCKS_PERTHREAD": 8, "NCCL_SOCKET_NTHREADS": 2}},
        {"sysctl": {RMEM: BIG}},
        {"sysctl": {RMEM: BIG}, "nccl": {"NCCL_NSOCKS_PERTHREAD": 4, "NCCL_SOCKET_NTHREADS": 2}},
        {"sysctl": {RMEM: BIG}, "nccl": {"NCCL_NSOCKS_PERTHREAD": 8, "NCCL_SOCKET_NTHREADS": 2}},
    ]
    assert found[3].label == f"{RMEM}={BIG}; NCCL_NSOCKS_PERTHREAD=4, NCCL_SOCKET_NTHREADS=2"
    assert list(space) == found


def test_a_candidate_is_what_nodectl_overrides_takes() -> None:
    document = {
        "allow_debug_variables": True,
        "sysctl": {RMEM: [BIG]},
        "nccl": {"NCCL_ALGO": ["Ring", "Tree"]},
        "nic": {"mtu": [9000]},
        "limits": {"nofile": [65536]},
        "gpu": {"clocks": ["max"]},
    }
    for candidate in space_of(document, "space"):
        merged = resolve("unknown", "cpu", "stock", overrides=candidate.overrides)
        assert merged.tuning.sysctl[RMEM].value == BIG
        assert merged.tuning.nccl["NCCL_ALGO"].value in ("Ring", "Tree")
        assert merged.tuning.nic.mtu is not None
        assert merged.tuning.nic.mtu.value == 9000


def test_a_space_of_millions_is_sampled_without_being_walked() -> None:
    document = {"sysctl": {f"net.ipv4.key_{n}": list(range(1, 11)) for n in range(30)}}
    space = space_of(document, "space")
    assert space.combinations == 10**30
    drawn = space.sample(50, seed=7)
    assert len({each.label for each in drawn}) == 50
    assert drawn == space.sample(50, seed=7) != space.sample(50, seed=8)


def test_what_changes_least_is_tried_first_and_among_equals_chance_decides() -> None:
    space = space_of({"sysctl": {f"net.ipv4.key_{n}": [None, 1, 2] for n in range(4)}}, "space")
    orders = [space.in_turn(100, seed) for seed in range(5)]
    assert len({tuple(each.label for each in order) for order in orders}) == 5
    for order in orders:
        assert [each.moved for each in order] == [1] * 8 + [2] * 24 + [3] * 32 + [4] * 16
        assert {each.label for each in order} == {each.label for each in space}
    assert space.in_turn(100, 3) == space.in_turn(100, 3)


@pytest.mark.parametrize(
    ("document", "told"),
    [
        ({}, "no field has more than one value"),
        ({"sysctls": {RMEM: [BIG]}}, "sysctls: there is no such field"),
        ({"sysctl": {RMEM: BIG}}, f"sysctl.{RMEM}: '{BIG}' is not a list"),
        ({"sysctl": {"tcp_rmem": [BIG]}}, "'tcp_rmem' is no sysctl key"),
        ({"nic": {"mtu": [9000, 90000]}}, "nic.mtu"),
        ({"nccl": {"NCCL_ALGO": ["Ring"]}}, "allow_debug_variables: true"),
        ({"launch": {"rank_order": ["random"]}}, "launch.rank_order: 'random'"),
        ({"probe": {"interface": [7]}}, "7 is not a plain value"),
        ({"together": {"buffers": [{}, {"sysctls": {RMEM: BIG}}]}}, "together.buffers.1.sysctls: there is no"),
        ({"sysctl": {RMEM: [BIG]}, "together": {"buffers": [{"sysctl": {RMEM: BIG}}]}}, f"sysctl.{RMEM} is varied by"),
    ],
)
def test_refused_with_its_path(document: dict[str, Any], told: str) -> None:
    with pytest.raises(ProfileError) as refused:
        space_of(document, "my space.yml")
    assert refused.value.message.startswith("my space.yml: ")
    assert told in refused.value.message
    assert refused.value.remedy


def test_options_of_a_workload_vary_as_settings_do() -> None:
    document = {
        "training": {"bucket_view": [False, True], "accumulation": [None, 2]},
        "together": {"compress": [{}, {"training": {"compress": "powersgd", "compress_rank": 16}}]},
    }
    found = list(space_of(document, "space"))
    assert len(found) == 8
    assert flag_words(found[1].run_with) == ("--no-bucket-view", "--compress=powersgd", "--compress-rank=16")
    assert flag_words(found[-1].run_with) == (
        "--bucket-view",
        "--accumulation=2",
        "--compress=powersgd",
        "--compress-rank=16",
    )
    assert not any(each.overrides for each in found)
