"""The memory probe: one means for all, hosts of one machine in turn, and the slow host named after a second look."""

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from nodectl.model.host import Host
from nodectl.probes.base import ProbeOptions, ProbeResult
from nodectl.probes.memory import run_memory
from nodectl.transport.router import LocalTransport
from tests.probes.scripted import HOSTS, Answer, play

Rates = Callable[[str, int], list[float]]


def ready(*methods: str, machine: str = "") -> Answer:
    """A host of its own machine, unless told otherwise."""
    return Answer([{"event": "ready", "methods": list(methods), "machine": machine}])


def measured(runs: Sequence[float], **more: Any) -> dict[str, Any]:
    told = {
        "event": "measured",
        "kernel": "triad",
        "numa": None,
        "threads": 4,
        "runs_gb_s": list(runs),
        "sustained_gb_s": list(runs),
    }
    return {**told, "array_bytes": 256 << 20, "cache_bytes": 32 << 20, **more}


def probe(
    monkeypatch: pytest.MonkeyPatch, rates: Rates, methods: dict[str, Answer] | None = None
) -> tuple[ProbeResult, Any]:
    """`rates` gets the host and the number of its measurement, from 0."""
    times: dict[str, int] = {}

    def answers(host: str, module: str, args: Sequence[str]) -> Answer:
        assert module == "probes.memory"
        if args[0] == "look":
            return (methods or {}).get(host, ready("torch", "libc"))
        number = times[host] = times.get(host, -1) + 1
        return Answer([measured(rates(host, number))])

    fleet = play(monkeypatch, answers)
    return run_memory(fleet, HOSTS, ProbeOptions(), lambda _: None), fleet


def told(result: ProbeResult) -> list[tuple[str, str, str, str]]:
    return [(each.host, each.check, each.status.value, each.kind) for each in result.findings]


def test_a_host_is_not_blamed_for_the_memory_that_it_shares(monkeypatch: pytest.MonkeyPatch) -> None:
    def answers(host: str, module: str, args: Sequence[str]) -> Answer:
        if args[0] == "look":
            return ready("libc", machine="one")
        # each gets its part of the processors
        rate = 40.0 if host == "node03" else 100.0
        return Answer([{"event": "spun", "got": 0.5} if args[0] == "spin" else measured([rate])])

    assert told(run_memory(play(monkeypatch, answers), HOSTS, ProbeOptions(), lambda _: None)) == []


def test_machines_are_compared_by_the_best_of_their_hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    hosts = [Host(f"node{n:02}", f"node{n:02}") for n in range(1, 9)]
    machine_of = {host.name: f"m{number // 2}" for number, host in enumerate(hosts)}

    def answers(host: str, module: str, args: Sequence[str]) -> Answer:
        if args[0] == "look":
            return ready("libc", machine=machine_of[host])
        return Answer([measured([{"node01": 60.0, "node05": 40.0, "node06": 42.0}.get(host, 100.0)])])

    (finding,) = run_memory(play(monkeypatch, answers), hosts, ProbeOptions(), lambda _: None).findings
    assert (finding.host, finding.actual) == (
        "node06",
        "42.0 GB/s; the median of the others is 100.0; the machine's, with node05",
    )


def test_the_slow_host_is_measured_again_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    result, fleet = probe(monkeypatch, lambda host, number: [30.0] if host == "node03" else [100.0])
    assert told(result) == [("node03", "memory", "failed", "host")]
    assert result.findings[0].actual == "30.0 GB/s; the median of the others is 100.0"
    assert [host for host, _, args in fleet.asked if args[0] == "measure"] == [*(host.name for host in HOSTS), "node03"]


def test_a_quota_shows_in_what_is_sustained_and_not_in_a_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    def answers(host: str, module: str, args: Sequence[str]) -> Answer:
        if args[0] == "look":
            return ready("libc")
        return Answer([measured([100.0], sustained_gb_s=[40.0 if host == "node02" else 97.0])])

    result = run_memory(play(monkeypatch, answers), HOSTS, ProbeOptions(), lambda _: None)
    assert told(result) == [("node02", "memory", "failed", "host")]
    assert [each.value for each in result.measurements] == [100.0] * 4
    assert result.findings[0].actual == "40.0 GB/s; the median of the others is 97.0"


def test_the_best_means_that_all_have_is_used_on_all(monkeypatch: pytest.MonkeyPatch) -> None:
    _, fleet = probe(monkeypatch, lambda host, number: [100.0], {"node02": ready("libc")})
    assert {arg for _, _, args in fleet.asked for arg in args if arg.startswith("--method")} == {"--method=libc"}


@pytest.mark.parametrize(("machines", "together"), [(1, 1), (2, 2)])
def test_hosts_of_one_machine_are_measured_in_turn(
    monkeypatch: pytest.MonkeyPatch, machines: int, together: int
) -> None:
    running, most, lock = 0, 0, threading.Lock()
    meet = threading.Barrier(together, timeout=10)

    def answers(host: str, module: str, args: Sequence[str]) -> Answer:
        nonlocal running, most
        if args[0] == "look":
            return ready("libc", machine=f"m{int(host[-1]) % machines}")
        with lock:
            running += 1
            most = max(most, running)
        meet.wait()
        with lock:
            running -= 1
        return Answer([measured([100.0])])

    run_memory(play(monkeypatch, answers), HOSTS, ProbeOptions(), lambda _: None)
    assert most == together


def test_this_machine_can_be_measured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    transport = LocalTransport()
    host = Host("here", "127.0.0.1", connection="local")
    result = run_memory(transport, [host], ProbeOptions(duration_s=0.01, repetitions=1), lambda _: None)
    assert result.findings == () and all(each.value > 0 for each in result.measurements)
    assert {"copy"} <= {each.conditions["kernel"] for each in result.measurements}
