"""Floors of odd conditions: units, sizes, ceilings, processors, and profiles that cannot be read."""

import re
from typing import Any

import pytest

from nodectl.errors import ProfileError
from nodectl.probes.floors import refuse_wrong_floors
from nodectl.profiles.schema import Floor
from tests.probes.test_expected import GIB, floor, hardware, held

SMALL = floor("rdma", 5, "us", {"operation": "write_lat", "size": 2})
MIDDLE = floor("rdma", 9, "us", {"operation": "write_lat", "size": "4K"})
ANY = floor("nccl", 35, "GB/s", {"collective": "all_reduce"})


@pytest.mark.parametrize(
    ("size", "value", "expected", "count"), [(2, 6.0, 5, 1), (64, 6.0, 9, 0), (8192, 60.0, None, 0)]
)
def test_a_ceiling_of_a_small_message_holds_for_no_larger_one(
    size: int, value: float, expected: float | None, count: int
) -> None:
    told = held([SMALL, MIDDLE], "rdma", value, "us", operation="write_lat", size_bytes=size)
    assert told == (expected, ["failed"] * count)


@pytest.mark.parametrize(("verdict", "expected"), [("large", 35), ("small", None), (None, None)])
def test_a_floor_without_a_size_is_one_of_large_messages(verdict: str | None, expected: float | None) -> None:
    told = held([ANY], "nccl", 0.1, "GB/s", collective="all_reduce", size_bytes=1024, verdict_size=verdict)
    assert told == (expected, ["failed"] if expected else [])


@pytest.mark.parametrize(("nodes", "expected"), [(1, None), (2, 330), (4, 330), (5, None)])
def test_what_four_nodes_reach_two_reach_as_well(nodes: int, expected: float | None) -> None:
    several = floor("nccl", 330, "GB/s", {"collective": "all_reduce", "nodes": 4, "ranks_per_host": 8, "size": "16G"})
    names = tuple(f"n{number}" for number in range(nodes))
    given = {"collective": "all_reduce", "ranks_per_host": 8, "size_bytes": 16 * GIB}
    assert held([several], "nccl", 300.0, "GB/s", names, **given) == (expected, ["failed"] if expected else [])
    assert held([several], "nccl", 300.0, "GB/s", names, **{**given, "ranks_per_host": 4}) == (None, [])


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"probe": "tpc"}, "n: floors.1.probe: no probe 'tpc'; did you mean tcp?"),
        ({"unit": "GB/s"}, "n: floors.1.unit: tcp measures in Gbit/s, and 'GB/s' is none of it"),
        ({"unit": "gigabits"}, "n: floors.1.unit: tcp measures in Gbit/s, and 'gigabits' is none of it"),
        ({"conditions": {"stream": 4}}, "n: floors.1.conditions.stream: tcp has no such condition; did you mean strea"),
        ({"conditions": {"size": "lots"}}, "n: floors.1.conditions.size: 'lots' is not a size; write 64K"),
    ],
)
def test_a_floor_that_nothing_is_ever_held_against_is_refused(wrong: dict[str, Any], message: str) -> None:
    given = {"probe": "tcp", "value": 20, "unit": "Gbit/s", "conditions": {"streams": 4}, "source": "x"}
    with pytest.raises(ProfileError, match=re.escape(message)):
        refuse_wrong_floors(hardware(floor("gemm", 1, "TFLOPS"), Floor.model_validate({**given, **wrong})), "n")
