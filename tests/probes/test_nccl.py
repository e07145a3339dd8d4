"""The nccl probe: bandwidths from the ranks' times, what is complete, and whom it blames when one of them ends."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from nodectl.common.units import MIB
from nodectl.model.host import Host
from nodectl.model.status import Status
from nodectl.probes.options import Sizes
from nodectl.transport.router import LocalTransport
from tests.probes.scripted import HOSTS, Answer
from tests.probes.scripted_nccl import fleet_of, measured, probe, proven, ranks_of, ready, times, with_gpus
from tests.torch_venv import torch_venv


def test_a_repetition_is_as_slow_as_its_slowest_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    found = probe(fleet_of(monkeypatch, measured))
    (only,) = found.measurements
    algbw = 64 * MIB / 0.5 / 1e9
    assert found.findings == ()
    assert (only.unit, only.hosts) == ("GB/s", tuple(host.name for host in HOSTS))
    assert only.value == pytest.approx(algbw * 1.5)
    assert only.spread == pytest.approx((1 / 0.4 - 1 / 0.8) / (1 / 0.5))
    expected = {"backend": "gloo", "scope": "all", "ranks": 4, "ranks_per_host": 1, "gpus": None}
    assert expected.items() <= only.conditions.items()
    expected = {"collective": "all_reduce", "size_bytes": 64 * MIB, "wrong": 0, "complete": True}
    assert {**expected, "verdict_size": "large"}.items() <= only.conditions.items()
    assert only.conditions["time_us"] == pytest.approx(5e5)
    assert (only.conditions["torch"], only.conditions["nccl"]) == ("2.7.0+cpu", None)


@pytest.mark.parametrize("odd", [{"gpus": 0}, {"torch": "2.7.0+cpu"}])
def test_one_host_without_takes_all_to_gloo(monkeypatch: pytest.MonkeyPatch, odd: dict[str, Any]) -> None:
    def answers(host: str, module: str, args: Sequence[str]) -> Answer:
        answer = with_gpus(host, module, args)
        return Answer([{**answer.events[0], **odd}]) if module == "probes.endpoints" and host == "node02" else answer

    found = probe(fleet_of(monkeypatch, answers))
    (only,) = found.measurements
    assert (only.conditions["backend"], only.conditions["ranks"]) == ("gloo", 4)
    assert [(each.host, each.status) for each in found.findings] == [("node02", Status.WARNING)]


def test_the_interface_that_sockets_used_is_proven(monkeypatch: pytest.MonkeyPatch) -> None:
    def answers(host: str, module: str, args: Sequence[str]) -> Answer:
        answer = measured(host, module, args)
        if host == "node03" and module == "probes.nccl.probe":
            events = [each for each in answer.events if each["event"] != "sockets"]
            return Answer([*events, {"event": "sockets", "rank": 2, "interfaces": {"docker0": 3}, "peers": []}])
        return answer

    (finding,) = probe(fleet_of(monkeypatch, answers)).findings
    assert (finding.host, finding.status, finding.subject) == ("node03", Status.FAILED, "interface")
    assert (finding.expected, finding.actual) == ("eth0", "docker0 (3 connections)")


def test_a_wrong_result_is_a_failure_of_its_host(monkeypatch: pytest.MonkeyPatch) -> None:
    def answers(host: str, module: str, args: Sequence[str]) -> Answer:
        if module == "probes.endpoints":
            return measured(host, module, args)
        told = [times(rank, [0.5], wrong=7 if rank == 2 else 0) for rank in ranks_of(args)]
        return Answer([*told, *(event for rank in ranks_of(args) for event in proven(rank))])

    found = probe(fleet_of(monkeypatch, answers))
    assert [(each.host, each.status, each.kind) for each in found.findings] == [("node03", Status.FAILED, "host")]
    assert found.measurements[0].conditions["wrong"] == 7


@pytest.mark.parametrize("how", ["wrong", "ended"])
def test_what_all_hosts_saw_drains_none_of_them(monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    gone = {"event": "error", "text": "Connection closed by peer", "peer": True}

    def answers(host: str, module: str, args: Sequence[str]) -> Answer:
        if module == "probes.endpoints":
            return measured(host, module, args)
        (rank,) = ranks_of(args)
        if how == "ended":
            return Answer([ready(rank), gone], status=1)
        return Answer([ready(rank), times(rank, [0.5], wrong=3), *proven(rank)])

    found = probe(fleet_of(monkeypatch, answers))
    bad = [each for each in found.findings if each.status is Status.FAILED]
    assert {each.host for each in bad} == {host.name for host in HOSTS}
    assert {(each.kind, each.action) for each in bad} == {("", "none")}
    assert all("--scope pairs" in each.remedy for each in bad)


def test_the_host_that_failed_is_named_not_those_that_saw_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def answers(host: str, module: str, args: Sequence[str]) -> Answer:
        if module == "probes.endpoints":
            return measured(host, module, args)
        started = {"event": "started", "pid": 77}
        if host == "node01":
            return Answer([started, {"event": "error", "text": "Connection closed by peer", "peer": True}], status=1)
        if host == "node03":
            return Answer([started], status=137, after_s=0.3, stderr="Killed\n")
        return Answer([started], status=143, after_s=30)

    fleet = fleet_of(monkeypatch, answers)
    found = probe(fleet)
    named = [each for each in found.findings if each.kind == "host"]
    assert [(each.host, each.actual) for each in named] == [("node03", "was ended by SIGKILL")]
    (cut,) = [each for each in found.findings if each.kind == "incomplete"]
    assert "node03: was ended by SIGKILL" in cut.actual
    assert sorted(fleet.killed) == [("node02", "77"), ("node04", "77")]


@pytest.mark.parametrize(
    ("events", "reason"),
    [
        ([], "the ranks did not come to an end"),
        (
            [{"event": "cut", "collective": "all_reduce", "asked_bytes": 8192, "reason": "the time was over"}],
            "all_reduce 8 KiB: the time was over",
        ),
    ],
)
def test_a_run_cut_short_is_incomplete_and_never_a_pass(
    monkeypatch: pytest.MonkeyPatch, events: list[dict[str, Any]], reason: str
) -> None:
    def answers(host: str, module: str, args: Sequence[str]) -> Answer:
        if module == "probes.endpoints":
            return measured(host, module, args)
        told: list[dict[str, Any]] = list(events) if host == "node01" else []
        for rank in ranks_of(args):
            sockets, done = proven(rank)
            told += [ready(rank), times(rank, [0.1], size=1024), sockets, *([done] if events else [])]
        return Answer(told)

    found = probe(fleet_of(monkeypatch, answers), sizes=Sizes((1024, 64 * MIB)))
    (cut,) = found.findings
    assert (cut.status, cut.kind, cut.subject) == (Status.UNKNOWN, "incomplete", "incomplete")
    assert reason in cut.actual
    (only,) = found.measurements
    # the one that was measured is neither the large size nor one of several
    assert (only.conditions["complete"], only.conditions["verdict_size"]) == (False, None)


def test_of_three_sizes_the_ends_decide(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = (1 << 10, 1 << 16, 1 << 22)

    def answers(host: str, module: str, args: Sequence[str]) -> Answer:
        if module == "probes.endpoints":
            return measured(host, module, args)
        told = []
        for rank in ranks_of(args):
            told += [times(rank, [50e-6 + size / 2e9] * 3, size=size) for size in sizes]
            told += [ready(rank), *proven(rank)]
        return Answer(told)

    found = probe(fleet_of(monkeypatch, answers), sizes=Sizes(sizes))
    assert [each.conditions["verdict_size"] for each in found.measurements] == ["small", None, "large"]


def test_two_real_processes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    hosts = [Host(name, "127.0.0.1", connection="local", variables={"pytorch_venv": torch_venv()}) for name in "ab"]
    found = probe(LocalTransport(), *hosts, sizes=Sizes((1000, MIB)), collectives=(), repetitions=2, duration_s=0.01)
    assert not [each for each in found.findings if each.status is not Status.SKIPPED]
    told = {(each.conditions["collective"], each.conditions["size_bytes"]) for each in found.measurements}
    assert {("all_reduce", MIB), ("broadcast", 1000), ("all_gather", 1000), ("sendrecv", MIB)} <= told
    assert all(each.value > 0 and each.conditions["wrong"] == 0 for each in found.measurements)
    assert {each.conditions["complete"] for each in found.measurements} == {True}
    assert found.measurements[0].conditions["interfaces_used"] == ["lo"]


@pytest.mark.slow
def test_a_size_that_no_memory_holds_is_cut(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    host = Host("a", "127.0.0.1", connection="local", variables={"pytorch_venv": torch_venv()})
    sizes = (1 << 10, 1 << 50)
    found = probe(LocalTransport(), host, scope="node", sizes=Sizes(sizes), collectives=("sendrecv",), repetitions=1)
    (only,) = found.measurements
    assert (only.conditions["size_bytes"], only.conditions["complete"]) == (1 << 10, False)
    assert [each.kind for each in found.findings] == ["incomplete"]
    assert "no room: the ranks have memory for" in found.findings[0].actual
