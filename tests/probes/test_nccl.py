"""The nccl probe: bandwidths from the ranks' times, and whom it blames when one of them ends."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from nodectl.errors import UsageError
from nodectl.model.host import Host
from nodectl.model.status import Status
from nodectl.probes.base import MIB, ProbeOptions, ProbeResult
from nodectl.probes.nccl import run_nccl
from nodectl.transport.local import LocalTransport
from tests.probes.scripted import ENDPOINT, HOSTS, Answer, play, silent
from tests.torch_venv import torch_venv


def quiet(_: str) -> None:
    """Nobody looks at the progress."""


def option(args: Sequence[str], name: str) -> str:
    return next(each.partition("=")[2] for each in args if each.startswith(f"--{name}="))


def ranks_of(args: Sequence[str]) -> range:
    base = int(option(args, "rank-base"))
    return range(base, base + int(option(args, "nproc")))


def times(rank: int, seconds: Sequence[float], wrong: int = 0) -> dict[str, Any]:
    return {
        "event": "times",
        "collective": "all_reduce",
        "size_bytes": 64 * MIB,
        "rank": rank,
        "iterations": 1,
        "seconds": seconds,
        "wrong": wrong,
    }


def ready(rank: int) -> dict[str, Any]:
    return {"event": "ready", "rank": rank, "torch": "2.7.0+cpu", "nccl": None, "device": "cpu"}


def measured(host: str, module: str, args: Sequence[str]) -> Answer:
    """Every host works; rank 1 is the slow one of the second repetition."""
    if module == "endpoint":
        return Answer([ENDPOINT])
    told = [{"event": "started", "pid": 77}]
    for rank in ranks_of(args):
        told += [ready(rank), times(rank, [0.5, 0.8 if rank == 1 else 0.5, 0.4])]
    return Answer(told)


def probe(fleet: Any, *hosts: Host, **options: Any) -> ProbeResult:
    return run_nccl(fleet, hosts or HOSTS, ProbeOptions(**options), quiet)


def test_a_repetition_is_as_slow_as_its_slowest_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    found = probe(play(monkeypatch, measured))
    (only,) = found.measurements
    algbw = 64 * MIB / 0.5 / 1e9
    assert (only.unit, only.hosts) == ("GB/s", tuple(host.name for host in HOSTS))
    assert only.value == pytest.approx(algbw * 1.5)
    assert only.spread == pytest.approx((1 / 0.4 - 1 / 0.8) / (1 / 0.5))
    expected = {"backend": "gloo", "ranks": 4, "collective": "all_reduce", "size_bytes": 64 * MIB, "wrong": 0}
    assert expected.items() <= only.conditions.items()
    assert only.conditions["time_us"] == pytest.approx(5e5)
    assert (only.conditions["torch"], only.conditions["nccl"]) == ("2.7.0+cpu", None)


def test_gpus_get_nccl_and_a_rank_each(monkeypatch: pytest.MonkeyPatch) -> None:
    def answers(host: str, module: str, args: Sequence[str]) -> Answer:
        if module == "endpoint":
            return Answer([{**ENDPOINT, "gpus": 8, "torch": "2.7.0+cu128"}])
        return measured(host, module, args)

    fleet = play(monkeypatch, answers)
    (only,) = probe(fleet).measurements
    assert (only.conditions["backend"], only.conditions["ranks"]) == ("nccl", 32)
    given = {host: args for host, module, args in fleet.asked if module == "probe_nccl"}
    assert [option(given[host.name], "rank-base") for host in HOSTS] == ["0", "8", "16", "24"]
    assert option(given["node01"], "nccl-interface") == ""


@pytest.mark.parametrize("odd", [{"gpus": 0}, {"torch": "2.7.0+cpu"}])
def test_one_host_without_takes_all_to_gloo(monkeypatch: pytest.MonkeyPatch, odd: dict[str, Any]) -> None:
    def answers(host: str, module: str, args: Sequence[str]) -> Answer:
        if module == "endpoint":
            own = {**ENDPOINT, "gpus": 8, "torch": "2.7.0+cu128"}
            return Answer([{**own, **odd} if host == "node02" else own])
        return measured(host, module, args)

    (only,) = probe(play(monkeypatch, answers)).measurements
    assert (only.conditions["backend"], only.conditions["ranks"]) == ("gloo", 4)


def test_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    found = probe(play(monkeypatch, measured), scope="pairs")
    assert len({each.hosts for each in found.measurements}) == 6
    assert {each.conditions["ranks"] for each in found.measurements} == {2}


def test_a_wrong_result_is_a_failure_of_its_host(monkeypatch: pytest.MonkeyPatch) -> None:
    def answers(host: str, module: str, args: Sequence[str]) -> Answer:
        if module == "endpoint":
            return Answer([ENDPOINT])
        return Answer([times(rank, [0.5], wrong=7 if rank == 2 else 0) for rank in ranks_of(args)])

    found = probe(play(monkeypatch, answers))
    assert [(each.host, each.status) for each in found.findings] == [("node03", Status.FAILED)]
    assert found.measurements[0].conditions["wrong"] == 7


def test_what_the_backend_lacks_is_skipped_once(monkeypatch: pytest.MonkeyPatch) -> None:
    lacks = {"event": "unsupported", "collective": "all_to_all", "size_bytes": 1024, "text": "not implemented"}

    def answers(host: str, module: str, args: Sequence[str]) -> Answer:
        return Answer([ENDPOINT]) if module == "endpoint" else Answer([lacks, lacks])

    found = probe(play(monkeypatch, answers))
    assert [(each.status, each.actual) for each in found.findings] == [(Status.SKIPPED, "gloo has no all_to_all")]


def test_the_host_that_failed_is_named_not_those_that_saw_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def answers(host: str, module: str, args: Sequence[str]) -> Answer:
        if module == "endpoint":
            return Answer([ENDPOINT])
        started = {"event": "started", "pid": 77}
        if host == "node01":
            return Answer([started, {"event": "error", "text": "Connection closed by peer", "peer": True}], status=1)
        if host == "node03":
            return Answer([started], status=137, after_s=0.3, stderr="Killed\n")
        return Answer([started], status=143, after_s=30)

    fleet = play(monkeypatch, answers)
    found = probe(fleet)
    assert [(each.host, each.actual) for each in found.findings] == [("node03", "Killed")]
    assert sorted(fleet.killed) == [("node02", "77"), ("node04", "77")]


def test_a_host_that_is_lost_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def answers(host: str, module: str, args: Sequence[str]) -> Answer:
        lost = host == "node02" and module == "probe_nccl"
        return silent("the connection was lost") if lost else measured(host, module, args)

    found = probe(play(monkeypatch, answers))
    assert [(each.host, each.status) for each in found.findings] == [("node02", Status.UNKNOWN)]
    assert not found.measurements


def test_hosts_without_torch_are_told_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def answers(host: str, module: str, args: Sequence[str]) -> Answer:
        bare = module == "endpoint" and host != "node01"
        return Answer([{**ENDPOINT, "torch": None}]) if bare else measured(host, module, args)

    found = probe(play(monkeypatch, answers))
    assert not found.measurements
    assert {each.host for each in found.findings} == {host.name for host in HOSTS}
    assert "nodectl provision" in found.findings[0].remedy


def test_usage(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = play(monkeypatch, measured)
    with pytest.raises(UsageError, match="all_redcue"):
        probe(fleet, collectives=("all_redcue",))
    with pytest.raises(UsageError, match="two ranks"):
        probe(fleet, HOSTS[0])


def test_two_real_processes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    hosts = [Host(name, "127.0.0.1", connection="local", variables={"pytorch_venv": torch_venv()}) for name in "ab"]
    found = probe(LocalTransport(), *hosts, sizes_bytes=(1000, MIB), repetitions=2, duration_s=0.01)
    assert not [each for each in found.findings if each.status is not Status.SKIPPED]
    told = {(each.conditions["collective"], each.conditions["size_bytes"]) for each in found.measurements}
    assert {("all_reduce", MIB), ("broadcast", 1000), ("all_gather", 1000)} <= told
    assert all(each.value > 0 and each.conditions["wrong"] == 0 for each in found.measurements)
