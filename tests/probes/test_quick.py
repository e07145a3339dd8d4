"""What is measured where no probe is named."""

from collections.abc import Mapping
from typing import Any

import pytest

from nodectl.model.facts import Unread
from nodectl.probes.quick import BUDGET_S, Choice, choice


class Fact:
    """Some of a fact's values."""

    def __init__(self, **values: object) -> None:
        self.__dict__.update(values)


def gpus(count: int) -> Any:
    from nodectl.facts.gpus import Gpus

    return Gpus(count, ())


CPU_ONLY: Mapping[str, Any] = {
    "gpus": Unread("absent", "no NVIDIA GPU"),
    "ib_ports": Unread("absent", "no RDMA device"),
    "versions": Fact(torch="2.7.0", iperf3="3.16"),
}
HGX: Mapping[str, Any] = {**CPU_ONLY, "gpus": gpus(8), "ib_ports": (object(),)}


def names(found: Choice) -> list[str]:
    return sorted(probe.name for probe in found.probes)


@pytest.mark.parametrize(
    ("hosts", "expected", "reasons"),
    [
        ([HGX] * 4, ["gemm", "hbm", "latency", "memory", "nccl", "rdma", "tcp"], []),
        (
            [CPU_ONLY] * 2,
            ["gemm", "latency", "memory", "nccl", "tcp"],
            ["hbm: no host has a GPU", "rdma: no host has an RDMA device"],
        ),
        (
            [HGX, CPU_ONLY],
            ["gemm", "hbm", "latency", "memory", "nccl", "tcp"],
            ["rdma: only one host has an RDMA device"],
        ),
        ([HGX], ["gemm", "hbm", "memory", "nccl"], ["latency, rdma, tcp: only one host is selected"]),
        (
            [{**CPU_ONLY, "versions": Fact(torch=None, iperf3=None)}] * 3,
            ["latency", "memory"],
            ["gemm, nccl: no host has torch", "tcp: no host has iperf3"],
        ),
        ([{"gpus": Unread("unknown", "no answer")}, {}], names(choice([HGX] * 2, BUDGET_S)), []),
    ],
)
def test_by_what_the_hosts_have(hosts: list[Mapping[str, Any]], expected: list[str], reasons: list[str]) -> None:
    found = choice(hosts, BUDGET_S)
    assert names(found) == expected
    assert set(reasons) <= set(found.left_out)


def test_the_cheapest_come_first_and_what_has_no_room_is_left_out() -> None:
    whole = choice([HGX] * 2, BUDGET_S)
    least = [probe.cost_s(probe.least) for probe in whole.probes]
    assert least == sorted(least)
    short = choice([HGX] * 2, sum(least[:3]))
    assert short.probes == whole.probes[:3] and any("no room" in line for line in short.left_out)
