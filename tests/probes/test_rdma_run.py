"""The rdma probe: figures exactly as perftest printed them, directions, rails, and reasons of what fails."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from nodectl.errors import UsageError
from nodectl.ledger.history.store import identity_of
from nodectl.model.host import Host
from nodectl.model.status import Status
from nodectl.probes.base import ProbeResult
from nodectl.probes.rdma.argv import RdmaOptions
from nodectl.probes.rdma.probe import run_rdma
from nodectl.transport.router import LocalTransport
from tests.probes.scripted import HOSTS, Answer, Fleet
from tests.probes.scripted_rdma import plans, rdma_fleet, told

PAIR = HOSTS[:2]


def probe(fleet: Fleet, hosts: Sequence[Host] = PAIR, **options: Any) -> ProbeResult:
    given = RdmaOptions(**{"repetitions": 1, "operations": ("write",), **options})
    return run_rdma(fleet, hosts, given, lambda _: None)


def good(name: str) -> Any:
    def test(_: int, __: Mapping[str, Any]) -> dict[str, Any]:
        client = told(f"{name}.client")
        return {"client": client, "server": {**client, "argv": client["argv"][:-1], "cpus": [0, 2, 3]}}

    return test


def same(tests: dict[str, Any]) -> Any:
    return lambda number, test: tests


# operation, recording, what stands in its table, from where to where each of the two tests carries data
PRINTED = [
    ("write", "ib_write_bw.json-gbits", 0.43, ["node01 -> node02", "node02 -> node01"]),
    ("read", "ib_write_bw.bidir", 0.198492, ["node02 -> node01", "node01 -> node02"]),
    ("write_lat", "ib_write_lat", 2023.53, ["node01 -> node02"]),
]


@pytest.mark.parametrize(("operation", "name", "value", "flows"), PRINTED)
def test_the_figure_is_perftests(
    monkeypatch: pytest.MonkeyPatch, operation: str, name: str, value: float, flows: list[str]
) -> None:
    client = told(f"{name}.client")
    found = probe(rdma_fleet(monkeypatch, same({"client": client, "server": None})), operations=(operation,))
    assert found.findings == ()
    assert [each.direction for each in found.measurements] == flows
    for each in found.measurements:
        assert (each.value, each.hosts) == (value, tuple(each.direction.split(" -> ")))
        printed: Any = each.conditions["printed"]
        (head, row) = printed[0].splitlines()
        assert len(printed) == 1
        assert f"{value:g}" in row.split() and head.startswith("#bytes")
        assert row in client["stdout"] and head in client["stdout"]


def test_a_reading_and_its_conditions(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = rdma_fleet(monkeypatch, good("ib_write_bw.json-gbits"))
    first = probe(fleet, repetitions=3).measurements[0]
    expected = {
        "operation": "write", "memory": "host", "size_bytes": 65536, "rail": "0", "client": "node01",
        "device": ["mlx5_0/1", "mlx5_0/1"], "repetitions": 3, "values": [0.43] * 3, "iterations": [200] * 3,
        "mtu": [4096, 4096], "rate_gbit_s": [0.25, 0.25], "link_layer": "Ethernet", "gid_index": [3, 3],
        "numa_node": [1, 1], "perftest": ["6.06"] * 2, "message_rate_mpps": [0.000817] * 3,
    }  # fmt: skip
    assert {name: first.conditions[name] for name in expected} == expected
    assert (first.unit, first.spread, first.expected) == ("Gb/s", 0.0, None)
    assert "write, device mlx5_0/1, memory host" in identity_of(first).subject
    assert [[test["group"] for test in plan] for plan in plans(fleet)] == [["0 write"] * 3] * 2
    assert plans(fleet)[0][0]["client_cpus"] == [4, 5, 6, 9]


@pytest.mark.parametrize(
    ("runs", "kind", "blamed", "hosts"),
    [
        ({"client": told("err.wrong-device.client"), "server": None}, "no_device", "host", ("node01",)),
        ({"client": None, "server": told("err.port-busy.server")}, "port_busy", "host", ("node02",)),
        ({"client": told("err.bad-gid.client"), "server": told("err.bad-gid.server")}, "bad_gid", "host", ("node01",)),
        ({"client": told("err.no-server.client"), "server": told("ib_write_bw.server", stdout="", status=-9)},
         "no_server", "path", ("node01", "node02")),
        ({"client": told("err.no-server.client"), "server": told(
            "err.port-busy.server", stdout="* Waiting for client to connect... *\n", status=-15, timed_out=True)},
         "firewall", "path", ("node01", "node02")),
        ({"client": None, "server": None, "gone": "timed out"}, "link_cut", "path", ("node01", "node02")),
    ],
)  # fmt: skip
def test_why_a_test_failed(
    monkeypatch: pytest.MonkeyPatch, runs: dict[str, Any], kind: str, blamed: str, hosts: tuple[str, ...]
) -> None:
    def first_only(number: int, test: Mapping[str, Any]) -> dict[str, Any]:
        return runs if test["host"] == "node01" else good("ib_write_bw.json-gbits")(number, test)

    found = probe(rdma_fleet(monkeypatch, first_only))
    (finding,) = found.findings
    assert (finding.subject, finding.kind, finding.hosts, finding.status) == (kind, blamed, hosts, Status.FAILED)
    assert finding.remedy and len(found.measurements) == 1
    assert finding.evidence == "" or "$ " in finding.evidence


CUT = told("err.link-cut-midrun.client")
STUCK = {"status": -15, "timed_out": True, "stdout": CUT["stdout"].partition(" #bytes")[0]}
UP = {"state": "ACTIVE", "carrier_changes": 1, "received": 0}


@pytest.mark.parametrize(
    ("link", "addresses", "kind", "says", "ended"),
    [
        (UP | {"state": "DOWN"}, None, "link_cut", "is DOWN now", {}),
        (UP | {"carrier_changes": 3}, None, "link_cut", "lost its link meanwhile", STUCK),
        # TCP passes where of RoCE not one packet comes in, over the same addresses
        (UP, None, "firewall", "UDP 4791", {}),
        (UP, None, "firewall", "UDP 4791", STUCK),
        # TCP took another way, or packets came in: neither tells of a firewall
        (UP, ["198.51.100.1", "198.51.100.2"], "", "nothing was carried", {}),
        (UP | {"received": 7}, None, "", "nothing was carried", STUCK),
    ],
)
def test_no_iteration_is_a_failure_whatever_the_exit_status(
    monkeypatch: pytest.MonkeyPatch,
    link: dict[str, Any],
    addresses: list[str] | None,
    kind: str,
    says: str,
    ended: dict[str, Any],
) -> None:
    runs = {"client": {**CUT, "link": link, **ended}, "server": told("err.link-cut-midrun.server", link=link, **ended)}
    found = probe(rdma_fleet(monkeypatch, same(runs | ({"addresses": addresses} if addresses else {}))))
    assert CUT["status"] == 0 and found.measurements == ()
    (finding,) = found.findings
    by_itself = "timeout" if ended else "link_cut"
    assert (finding.subject, finding.status, finding.kind) == (kind or by_itself, Status.FAILED, "path")
    assert says in finding.actual and "write" in finding.actual


def test_a_slow_host_is_measured_again_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    slow = "192.0.2.3"
    fleet = rdma_fleet(monkeypatch, same({}))
    answers = fleet.answers

    def some_slow(host: str, module: str, args: Sequence[str]) -> Answer:
        found = answers(host, module, args)
        if args[0] != "measure":
            return found
        rate = "0.43" if slow not in (args[args.index("--address") + 1], f"192.0.2.{int(host[-2:])}") else "0.11"
        client = told("ib_write_bw.json-gbits.client")
        client["stdout"] = client["stdout"].replace("0.43               0.43", f"{rate}               {rate}")
        return Answer([{**event, "client": client, "server": None} for event in found.events])

    fleet.answers = some_slow
    found = probe(fleet, HOSTS)
    assert {each.value for each in found.measurements} == {0.43, 0.11}
    (finding,) = found.findings
    assert (finding.status, finding.kind, finding.hosts, finding.check) == (Status.FAILED, "host", ("node03",), "rdma")
    assert any("again" in each.conditions for each in found.measurements)


@pytest.mark.parametrize(
    ("options", "hosts", "says"),
    [
        ({"operations": ("fly",)}, PAIR, "no operation 'fly'"),
        ({}, HOSTS[:1], "only one is selected"),
        ({"scope": "rail"}, HOSTS, "no scope 'rail'"),
        ({"operations": ("fly",), "scope": "node"}, HOSTS[:1], "no operation"),
    ],
)
def test_what_cannot_be_asked(options: dict[str, Any], hosts: Sequence[Host], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        run_rdma(LocalTransport(), hosts, RdmaOptions(**options), print)
