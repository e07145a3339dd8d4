"""The tcp probe: what becomes a measurement, what a finding, and whom it blames."""

import json
import shutil
import socket
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nodectl.model.host import Host
from nodectl.model.status import Status
from nodectl.probes.base import ProbeResult
from nodectl.probes.tcp import TcpOptions, run_tcp
from nodectl.transport.router import LocalTransport
from tests.probes.scripted import ENDPOINT, HOSTS, Answer, play, silent

LISTENING = Answer([{"event": "listening", "port": 40001, "pid": 77}])


def quiet(_: str) -> None:
    """Nobody looks at the progress."""


def test(reverse: bool, gbit_s: float, **more: Any) -> dict[str, Any]:
    end = {"sum_sent": {"bits_per_second": 2e9, "retransmits": 3}, "sum_received": {"bits_per_second": gbit_s * 1e9}}
    document = {"start": {"version": "iperf 3.12"}, "end": {**end, "sender_tcp_congestion": "cubic"}, **more}
    return {"event": "test", "reverse": reverse, "text": json.dumps(document), "stderr": ""}


test.__test__ = False  # type: ignore[attr-defined]

RUNS = [test(False, 0.94), test(True, 0.5), test(False, 0.95), test(True, 0.4), test(False, 0.96), test(True, 0.6)]
EVEN = [test(False, 0.94), test(True, 0.95), test(False, 0.95), test(True, 0.94)]


def measured(host: str, module: str, args: Sequence[str]) -> Answer:
    """Every host works."""
    if module == "probes.endpoints":
        return Answer([ENDPOINT])
    return LISTENING if args[0] == "serve" else Answer(RUNS)


def probe(fleet: Any, *hosts: Host, **options: Any) -> ProbeResult:
    return run_tcp(fleet, hosts or HOSTS[:2], TcpOptions(**options), quiet)


def test_both_directions_with_median_and_spread(monkeypatch: pytest.MonkeyPatch) -> None:
    found = probe(play(monkeypatch, measured), streams=4)
    there, back = found.measurements
    assert (there.hosts, there.direction, there.unit) == (("node01", "node02"), "node01 -> node02", "Gbit/s")
    assert (there.value, back.value) == pytest.approx((0.95, 0.5))
    assert (there.spread, back.spread) == pytest.approx((0.02 / 0.95, 0.4))
    assert back.hosts == ("node02", "node01")
    assert {"streams": 4, "repetitions": 3, "retransmits": 9, "congestion": "cubic"}.items() <= there.conditions.items()
    assert found.findings == ()


def test_a_dead_host_is_named_and_the_others_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    def answers(host: str, module: str, args: Sequence[str]) -> Answer:
        if host == "node03":
            return silent()
        return Answer(EVEN) if module == "probes.tcp" and args[0] == "measure" else measured(host, module, args)

    found = probe(play(monkeypatch, answers), *HOSTS)
    assert [(each.host, each.status, each.kind) for each in found.findings] == [("node03", Status.UNKNOWN, "host")]
    assert found.findings[0].actual == "no route to host"
    assert {name for each in found.measurements for name in each.hosts} == {"node01", "node02", "node04"}


def test_a_path_that_fails_one_way_blames_that_way_and_ends_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    refused = {"event": "test", "reverse": True, "stderr": "", "text": '{"error": "unable to connect: refused"}'}

    def answers(host: str, module: str, args: Sequence[str]) -> Answer:
        if module == "probes.tcp" and args[0] == "measure":
            return Answer([RUNS[0], refused], status=1)
        return measured(host, module, args)

    fleet = play(monkeypatch, answers)
    found = probe(fleet)
    assert [each.direction for each in found.measurements] == ["node01 -> node02"]
    assert [(each.kind, each.hosts, each.status) for each in found.findings] == [
        ("path", ("node02", "node01"), Status.FAILED)
    ]
    assert "firewall" in found.findings[0].remedy
    assert fleet.killed == [("node02", "77")]


def gigabits(rates: Callable[[str, str], float], machine: str = "") -> Callable[[str, str, Sequence[str]], Answer]:
    """Hosts between which so much goes through; a server's name is found by the address that a client asks for."""
    names = {host.address: host.name for host in FLEET}

    def answers(host: str, module: str, args: Sequence[str]) -> Answer:
        if module == "probes.endpoints":
            address = next(each.address for each in FLEET if each.name == host)
            return Answer([{**ENDPOINT, "address": address, "machine": machine}])
        if args[0] == "serve":
            return LISTENING
        server = names[args[args.index("--address") + 1]]
        return Answer([test(False, rates(host, server)), test(True, rates(server, host))])

    return answers


FLEET = tuple(Host(f"node{n:02}", f"192.0.2.{n}", variables={"nodectl_switch": f"leaf{n % 2}"}) for n in range(1, 9))


class TestSlow:
    """Who is slow is measured again, with others, and named."""

    @staticmethod
    def rates(sender: str, receiver: str) -> float:
        wobble = (hash_of(sender, receiver) % 7) / 200
        return (0.4 if sender == "node03" else 0.94) * (1 - wobble)

    def test_a_host_that_sends_slowly(self, monkeypatch: pytest.MonkeyPatch) -> None:
        notes: list[str] = []
        found = run_tcp(play(monkeypatch, gigabits(self.rates)), FLEET, TcpOptions(repetitions=1), notes.append)
        assert [(each.kind, each.hosts, each.subject) for each in found.findings] == [
            ("host", ("node03",), "sends slowly")
        ]
        again = [each for each in found.measurements if "again" in each.conditions]
        assert len(found.measurements) - len(again) == 8 * 7
        assert again and any("measured again" in note for note in notes)

    @pytest.mark.parametrize(("gbit_s", "limited", "named"), [(6.0, False, 0), (1.0, False, 1), (6.0, True, 1)])
    def test_of_one_machine_only_what_load_cannot_do_is_named(
        self, monkeypatch: pytest.MonkeyPatch, gbit_s: float, limited: bool, named: int
    ) -> None:
        """Without a rate the processors are the limit of all: one that carries 60 % is measured once and not named."""
        hosts = [replace(host, variables={"nodectl_link_rate": "10gbit"} if limited else {}) for host in FLEET]
        fleet = play(monkeypatch, gigabits(lambda a, _: gbit_s if a == "node03" else 9.4, "one"))
        found = run_tcp(fleet, hosts, TcpOptions(repetitions=1), quiet)
        assert [finding.host for finding in found.findings] == ["node03"] * named
        assert named or len(found.measurements) == 8 * 7


def hash_of(*names: str) -> int:
    """The same in each run, unlike hash()."""
    return sum(ord(letter) * (place + 3) for place, letter in enumerate("".join(names)))


@pytest.mark.skipif(shutil.which("iperf3") is None, reason="iperf3 is not installed")
class TestForReal:
    """iperf3 itself, over the loopback interface."""

    A, B = Host("a", "127.0.0.1", connection="local"), Host("b", "127.0.0.1", connection="local")

    @pytest.fixture(autouse=True)
    def own_state(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))

    def test_both_directions_and_nothing_left(self) -> None:
        found = probe(LocalTransport(), self.A, self.B, duration_s=1, repetitions=1)
        assert found.findings == ()
        assert [each.hosts for each in found.measurements] == [("a", "b"), ("b", "a")]
        assert all(each.value > 0.1 for each in found.measurements)
        assert found.measurements[0].conditions["interfaces"] == ["lo", "lo"]
        assert found.measurements[0].conditions["mtu"] == [65536, 65536]

    def test_a_port_that_is_taken_is_told(self) -> None:
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            found = probe(LocalTransport(), self.A, self.B, duration_s=1, repetitions=1, port=taken.getsockname()[1])
        assert not found.measurements
        assert [(each.host, each.status) for each in found.findings] == [("b", Status.FAILED)]
        assert "in use" in found.findings[0].actual
