"""What NCCL's log proves, and what is said where it is not what it should be."""

from collections.abc import Sequence
from typing import Any

import pytest

from nodectl.common.units import MIB
from nodectl.model.status import Status
from nodectl.probes.nccl.fleet import Route
from nodectl.probes.nccl.proof import host_log_of, judged, sockets_judged
from nodectl.probes.options import Sizes
from nodectl.probes.registry import kind_of
from nodectl.report.measurements import measurements_table
from tests.probes.scripted import Answer
from tests.probes.scripted_nccl import fleet_of, option, probe, ranks_of, ready, times, with_gpus

IB = "NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB [RO]; OOB eno1:10.0.0.9<0>"
ETH = "NET/Socket : Using [0]eno1:10.0.0.9<0>"
RDMA = Route(adapters=("mlx5_0", "mlx5_1"), socket="eno1", gpu_direct=True, nvlink=True)
SOCKETS = Route(socket="eno1")
BOTH = ("[send] via NET/IB/0/GDRDMA", "[send] via NET/IB/1/GDRDMA")


def log(*said: str) -> list[str]:
    return [f"NCCL INFO {each}" for each in said]


def told(lines: Sequence[str], route: Route, *, alone: bool = False) -> list[tuple[Status, str]]:
    found = judged(host_log_of("node01", lines), route, alone=alone)
    return [(each.status, each.subject) for each in found]


@pytest.mark.parametrize(
    ("lines", "route", "expected"),
    [
        (log(IB, *BOTH), RDMA, []),
        (log(ETH, "[send] via NET/Socket/0"), SOCKETS, []),
        (log(ETH, "NET/IB : No device found.", "[send] via NET/Socket/0"), RDMA, [(Status.FAILED, "network")]),
        (log(ETH, "[send] via NET/Socket/0"), Route(socket="eth2"), [(Status.FAILED, "interface")]),
        (log(IB, "[send] via NET/IB/0", "[send] via NET/IB/1"), RDMA, [(Status.FAILED, "gpu direct")]),
        (log(IB, BOTH[0]), RDMA, [(Status.WARNING, "adapters")]),
        (log(IB.replace("mlx5_1", "mlx5_bond_0"), BOTH[1]), Route(("mlx5_0",)), [(Status.FAILED, "adapters")] * 1),
        (log(IB, "0[0] -> 1[1] via SHM/direct/direct", *BOTH), RDMA, [(Status.FAILED, "peer access")]),
        (log(IB, *BOTH), Route(unknown="no answer"), [(Status.UNKNOWN, "network")]),
        (log(IB), RDMA, [(Status.UNKNOWN, "network")]),
        ([], RDMA, [(Status.UNKNOWN, "nccl log")]),
        ([*log(IB, *BOTH), "NCCL WARN Call to ibv_reg_mr failed"], RDMA, [(Status.WARNING, "nccl warning")]),
    ],
)
def test_what_is_said(lines: list[str], route: Route, expected: list[tuple[Status, str]]) -> None:
    found = told(lines, route)
    # an adapter that should not be used leaves the right one idle
    assert [each for each in found if each != (Status.WARNING, "adapters") or each in expected] == expected


@pytest.mark.parametrize(
    ("said", "remedy"),
    [
        ("NCCL_IB_DISABLE set by environment to 1.", "NCCL_IB_DISABLE is set"),
        ("NCCL_NET set by environment to Socket", "NCCL_NET asks for sockets"),
        ("NET/IB : No device found.", "look at its RDMA ports"),
    ],
)
def test_a_fall_back_names_host_interface_and_cause(said: str, remedy: str) -> None:
    lines = log(said, ETH, "[send] via NET/Socket/0")
    (finding,) = judged(host_log_of("node07", lines), RDMA, alone=False)
    assert (finding.host, finding.kind, finding.expected) == ("node07", "host", "NET/IB over mlx5_0, mlx5_1")
    assert finding.actual.startswith("NET/Socket over eno1")
    assert finding.remedy.startswith(remedy)


@pytest.mark.parametrize(
    ("used", "wanted", "status"),
    [
        ({"eth0": 4}, "eth0", None),
        ({"eth0": 4, "eth1": 1}, "eth0", Status.FAILED),
        ({"lo": 4}, "eth0", Status.FAILED),
        ({}, "eth0", Status.UNKNOWN),
    ],
)
def test_sockets(used: dict[str, int], wanted: str, status: Status | None) -> None:
    assert [each.status for each in sockets_judged("a", used, wanted)] == ([status] if status else [])


def test_a_line_logged_while_a_case_was_checked_is_of_that_case(monkeypatch: pytest.MonkeyPatch) -> None:
    """NCCL before 2.23 names no collective: the log alone cannot tell a broadcast's line from an all_reduce's."""

    def answers(host: str, module: str, args: Sequence[str]) -> Answer:
        if module == "probes.endpoints":
            return with_gpus(host, module, args)
        lines = {
            size: f"NCCL INFO {size} Bytes -> Algo {algo} proto 2 time 9.1" for size, algo in ((MIB, 0), (64 * MIB, 4))
        }
        events: list[dict[str, Any]] = []
        for rank in ranks_of(args):
            events.append(ready(rank))
            for size, line in lines.items():
                events.append({**times(rank, [0.5], size=size), "chosen": line if rank == 0 else None})
            ambiguous = [
                f"NCCL INFO {size} Bytes -> Algo {algo} proto 2 time 9.1" for size in lines for algo in (0, 1, 4)
            ]
            events.append({"event": "nccl_log", "rank": rank, "lines": [*log(IB, *BOTH), *ambiguous]})
            events.append({"event": "done", "rank": rank})
        return Answer(events)

    found = probe(fleet_of(monkeypatch, answers, RDMA), sizes=Sizes((MIB, 64 * MIB)))
    told = [
        (each.conditions["algorithm"], each.conditions["protocol"], each.conditions["nvls"])
        for each in found.measurements
    ]
    assert told == [("TREE", "SIMPLE", False), ("NVLS", "SIMPLE", True)]


def test_the_whole_of_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rank 0 tells what was chosen, node03 alone falls back."""

    def answers(host: str, module: str, args: Sequence[str]) -> Answer:
        if module == "probes.endpoints":
            return with_gpus(host, module, args)
        events: list[dict[str, Any]] = []
        net = (ETH, "[send] via NET/Socket/0") if host == "node03" else (IB, *BOTH)
        for rank in ranks_of(args):
            chosen = f"NCCL INFO AllReduce: {64 * MIB} Bytes -> Algo NVLS proto SIMPLE " if rank == 0 else None
            events += [ready(rank), {**times(rank, [0.5]), "chosen": chosen}]
            events.append({"event": "nccl_log", "rank": rank, "lines": log(*net)})
            events.append({"event": "done", "rank": rank})
        assert option(args, "backend") == "nccl"
        return Answer(events)

    found = probe(fleet_of(monkeypatch, answers, RDMA))
    assert [(each.host, each.status, each.subject) for each in found.findings] == [("node03", Status.FAILED, "network")]
    (only,) = found.measurements
    expected = {"algorithm": "NVLS", "protocol": "SIMPLE", "nvls": True, "complete": True}
    assert expected.items() <= only.conditions.items()
    assert only.conditions["network"] == {
        **dict.fromkeys(("node01", "node02", "node04"), "NET/IB"),
        "node03": "NET/Socket",
    }
    row = measurements_table(found.measurements, kind_of).splitlines()[1]
    assert row.endswith("all_reduce 64 MiB, nccl, 32 ranks, NVLS/SIMPLE")
