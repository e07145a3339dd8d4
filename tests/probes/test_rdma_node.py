"""The rdma probe on each host by itself: which NICs are measured with which, what is told of them, and who is slow."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from nodectl.ledger.history.store import identity_of
from nodectl.model.host import Host
from nodectl.model.status import Status
from nodectl.probes.base import ProbeResult
from nodectl.probes.rdma.argv import RdmaOptions
from nodectl.probes.rdma.probe import run_rdma
from tests.probes.scripted import HOSTS, Answer, Fleet
from tests.probes.scripted_rdma import plans, port, rdma_fleet, told

ONE = HOSTS[:1]
Rate = Callable[[str, str, str], float]
CUT = told("err.link-cut-midrun.client")


def probe(fleet: Fleet, hosts: Sequence[Host] = ONE, **options: Any) -> ProbeResult:
    given = RdmaOptions(**{"scope": "node", "repetitions": 1, "operations": ("write",), **options})
    return run_rdma(fleet, hosts, given, lambda _: None)


def with_nics(count: int, hosts: Sequence[Host] = ONE, **more: Any) -> dict[str, dict[str, Any]]:
    return {host.name: {"ports": [port(host.name, f"mlx5_{n}", **more) for n in range(count)]} for host in hosts}


def at(rate: float) -> dict[str, Any]:
    """A test whose table says so; both ends ended well."""
    client = told("ib_write_bw.json-gbits.client")
    client["stdout"] = client["stdout"].replace("0.43               0.43", f"{rate}               {rate}")
    return {"client": client, "server": {**client, "argv": client["argv"][:-1]}}


def ends(test: Mapping[str, Any]) -> tuple[str, str]:
    return test["client_port"][0], test["server_port"][0]


def rated(rate: Rate) -> Callable[[int, Mapping[str, Any]], dict[str, Any]]:
    """Each test is as quick as `rate` says of host, client's and server's device; 0 is a path that is cut."""

    def test(_: int, test: Mapping[str, Any]) -> dict[str, Any]:
        value = rate(test["host"], *ends(test))
        return at(value) if value else {"client": CUT, "server": told("err.link-cut-midrun.server")}

    return test


def everywhere(_: str, __: str, ___: str) -> float:
    return 0.43


@pytest.mark.parametrize("count", [1, 2, 3, 8])
def test_each_nic_is_measured_with_the_next_one(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    fleet = rdma_fleet(monkeypatch, rated(everywhere), with_nics(count))
    found = probe(fleet, operations=("write", "write_lat", "read"))
    assert found.findings == ()
    (plan,) = plans(fleet)
    bandwidths = {ends(test) for test in plan if test["client"][0] == "ib_write_bw"}
    ring = {(f"mlx5_{n}", f"mlx5_{(n + 1) % count}") for n in range(count)}
    assert bandwidths == ring | {(b, a) for a, b in ring}
    # latency is that of a round trip
    assert len([test for test in plan if test["client"][0] == "ib_write_lat"]) == len(
        {frozenset(pair) for pair in ring}
    )


NETWORKS = [["192.0.2.0/24"], ["192.0.2.0/24", "192.0.0.0/16"], ["192.0.2.1/32"], []]
PREFIX = {"index": 0, "gid": "fe80:0000:0000:0001:0000:0000:0000:0001", "type": "IB/RoCE v1", "netdev": None}


@pytest.mark.parametrize(
    ("differing", "alone"),
    [
        ([{"networks": each} for each in NETWORKS], {"mlx5_2", "mlx5_3"}),
        ([{"rate_gbit_s": each} for each in (400.0, 100.0, 400.0, 200.0)], {"mlx5_1", "mlx5_3"}),
        ([{"link_layer": "InfiniBand", "gids": []}] * 3 + [{"link_layer": "InfiniBand", "gids": [PREFIX]}], {"mlx5_3"}),
    ],
    ids=["networks", "rates", "subnets"],
)
def test_a_nic_that_reaches_no_other_is_measured_with_itself(
    monkeypatch: pytest.MonkeyPatch, differing: list[dict[str, Any]], alone: set[str]
) -> None:
    ports = [port("node01", f"mlx5_{n}", **more) for n, more in enumerate(differing)]
    fleet = rdma_fleet(monkeypatch, rated(everywhere), {"node01": {"ports": ports}})
    found = probe(fleet)
    (plan,) = plans(fleet)
    assert {a for a, b in map(ends, plan) if a == b} == alone
    ways = {str(row.conditions["way"]): row for row in found.measurements}
    assert set(ways) == {"loopback", "nic to nic"}
    assert len(found.measurements) == len(plan)


def test_a_reading_tells_its_way_and_no_other_is_its_like(monkeypatch: pytest.MonkeyPatch) -> None:
    alone = probe(rdma_fleet(monkeypatch, rated(everywhere), with_nics(1)), repetitions=3).measurements
    both = probe(rdma_fleet(monkeypatch, rated(everywhere), with_nics(2))).measurements
    pair = run_rdma(
        rdma_fleet(monkeypatch, lambda _, __: at(0.43)), HOSTS[:2],
        RdmaOptions(repetitions=1, operations=("write",)), lambda _: None,
    ).measurements  # fmt: skip
    (loop,) = alone
    assert (loop.hosts, loop.direction, loop.value, loop.unit) == (("node01",), "node01 mlx5_0/1", 0.43, "Gb/s")
    expected = {
        "way": "loopback",
        "device": ["mlx5_0/1", "mlx5_0/1"],
        "rail": "0",
        "values": [0.43] * 3,
        "client": "node01",
    }
    assert {name: loop.conditions[name] for name in expected} == expected
    assert [(row.hosts, row.direction) for row in both] == [
        (("node01",), "node01 mlx5_0/1 -> mlx5_1/1"), (("node01",), "node01 mlx5_1/1 -> mlx5_0/1"),
    ]  # fmt: skip
    assert "way" not in pair[0].conditions and "way" not in identity_of(pair[0]).subject
    assert identity_of(loop).subject == "write, device mlx5_0/1, memory host, rail 0, way loopback"
    assert len({identity_of(row).key for row in (*alone, *both, *pair)}) == 5


def slow_at(host: str, *devices: str, rate: float = 0.11) -> Rate:
    return lambda own, *pair: rate if own == host and set(devices) & set(pair) else 0.43


def named(found: ProbeResult) -> list[tuple[str, Status, str, str]]:
    return [(each.host, each.status, each.subject, each.kind) for each in found.findings]


def test_a_slow_nic_is_named_with_its_host_and_its_neighbours_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = rdma_fleet(monkeypatch, rated(slow_at("node02", "mlx5_2")), with_nics(4, HOSTS))
    found = probe(fleet, HOSTS)
    assert named(found) == [("node02", Status.FAILED, "write of mlx5_2/1", "host")]
    assert "mlx5_2/1, nic to nic: 0.11 Gb/s" in found.findings[0].actual
    # suspects are measured once more: on their host alone
    again = [host for host, _, args in fleet.asked if args[0] == "measure"][len(HOSTS) :]
    assert again == ["node02"]


def test_two_that_have_only_each_other_are_named_together(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = rdma_fleet(monkeypatch, rated(slow_at("node04", "mlx5_0", "mlx5_1")), with_nics(2, HOSTS))
    assert named(probe(fleet, HOSTS)) == [("node04", Status.FAILED, "write of mlx5_0/1 or mlx5_1/1", "host")]


def test_a_nic_that_is_cut_off_fails_with_each_neighbour(monkeypatch: pytest.MonkeyPatch) -> None:
    def rate(_: str, a: str, b: str) -> float:
        return 0.0 if "mlx5_2" in (a, b) else 0.43

    found = probe(rdma_fleet(monkeypatch, rated(rate), with_nics(4)))
    assert [(each.subject, each.status) for each in found.findings] == [("link_cut", Status.FAILED)] * 2
    assert all("mlx5_2/1" in each.actual for each in found.findings)


def test_a_host_that_goes_away_is_unknown_and_the_others_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = rdma_fleet(monkeypatch, rated(everywhere), with_nics(2, HOSTS))
    answers = fleet.answers
    fleet.answers = lambda host, module, args: (
        Answer([], status=1, stderr="killed\n")
        if host == "node02" and args[0] == "measure"
        else answers(host, module, args)
    )
    found = probe(fleet, HOSTS)
    assert [(each.status, each.hosts) for each in found.findings] == [(Status.UNKNOWN, ("node02",))]
    assert {row.hosts for row in found.measurements} == {(name,) for name in ("node01", "node03", "node04")}
