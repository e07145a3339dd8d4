"""The latency probe: both asking ends of each pair, errors with their remedies, and whom slow round trips blame."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from nodectl.model.host import Host
from nodectl.model.status import Status
from nodectl.probes.base import ProbeOptions, ProbeResult
from nodectl.probes.latency import run_latency
from nodectl.transport.router import LocalTransport
from tests.probes.scripted import ENDPOINT, HOSTS, Answer, play

LISTENING = Answer([{"event": "listening", "port": 40001, "pid": 77}])
MANY = tuple(Host(f"node{n:02}", f"192.0.2.{n}") for n in range(1, 9))
Trip = Callable[[str, str, int], float]


def run_of(p50: float, reverse: bool, least: float | None = None) -> dict[str, Any]:
    us = {"min": p50 * 0.8 if least is None else least, "p50": p50, "p99": p50 * 3, "max": p50 * 9}
    return {"event": "run", "reverse": reverse, "count": 2000, "us": us}


def alike(a: str, b: str, number: int) -> float:
    """A healthy fleet, with a little noise."""
    return 25.0 + (7 * int(a[-1]) + 3 * int(b[-1]) + number) % 5 * 0.2


def fleet(
    monkeypatch: pytest.MonkeyPatch,
    trip: Trip,
    client: Answer | None = None,
    machine: str = "",
    least: float | None = None,
) -> Any:
    """`trip` gets the asking host, the echoing one, and the number of the measurement."""
    addresses = {host.address: host.name for host in MANY}
    number = 0

    def answers(host: str, module: str, args: Sequence[str]) -> Answer:
        nonlocal number
        if module == "probes.endpoints":
            return Answer([{**ENDPOINT, "address": args[1], "machine": machine}])
        if args[0] == "serve":
            return LISTENING
        if client is not None:
            return client
        number += 1
        other = addresses[args[2]]
        there, back = trip(host, other, number), trip(other, host, number)
        return Answer([run_of(there, False, least=least), run_of(back, True, least=least)] * 3)

    return play(monkeypatch, answers)


def probe(transport: Any, hosts: Sequence[Host] = HOSTS[:2], **options: Any) -> ProbeResult:
    return run_latency(transport, hosts, ProbeOptions(**options), lambda _: None)


def test_each_end_asks_and_the_percentiles_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = [run_of(p50, reverse) for p50, reverse in ((20, False), (30, True), (22, False), (34, True), (26, False))]
    found = probe(fleet(monkeypatch, alike, Answer(runs)))
    there, back = found.measurements
    assert (there.hosts, there.direction, there.unit) == (("node01", "node02"), "node01 -> node02", "us")
    assert there.value == 22 and there.spread == pytest.approx(6 / 22)
    assert (back.hosts, back.value) == (("node02", "node01"), 32)
    assert there.conditions["p99_us"] == 66 and there.conditions["exchanges"] == [2000] * 3
    assert json.dumps(there.conditions) and found.findings == ()


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        ("192.0.2.2 port 40001: Connection refused", "firewall between them"),
        ("an exchange took longer than 5 s: is the path cut?", "drops packets"),
    ],
)
def test_a_pair_that_fails_is_a_path_with_a_remedy(monkeypatch: pytest.MonkeyPatch, text: str, remedy: str) -> None:
    nodes = fleet(monkeypatch, alike, Answer([{"event": "error", "text": text}], status=1))
    found = probe(nodes)
    (finding,) = found.findings
    assert (finding.kind, finding.hosts, finding.status) == ("path", ("node01", "node02"), Status.FAILED)
    assert finding.actual == text and remedy in finding.remedy
    assert not found.measurements and nodes.killed == [("node02", "77")]


def test_the_slow_host_is_named_after_a_second_look(monkeypatch: pytest.MonkeyPatch) -> None:
    found = probe(fleet(monkeypatch, lambda a, b, n: alike(a, b, n) * (4 if "node03" in (a, b) else 1)), MANY)
    (finding,) = found.findings
    assert (finding.host, finding.kind, finding.hosts, finding.status) == ("node03", "host", ("node03",), "failed")
    assert "4.0 times the fleet" in finding.actual and finding.expected.startswith("about 25")


class TestForReal:
    """Two names of this machine, over the loopback interface."""

    A, B = Host("a", "127.0.0.1", connection="local"), Host("b", "127.0.0.1", connection="local")

    def test_both_directions(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
        found = probe(LocalTransport(), (self.A, self.B), duration_s=0.1, repetitions=2)
        # a busy machine may make one direction look slow: that is a warning, and nobody is blamed
        assert all(finding.status is Status.WARNING for finding in found.findings)
        assert [measurement.hosts for measurement in found.measurements] == [("a", "b"), ("b", "a")]
        for each in found.measurements:
            assert 1 < each.value < 1e5
