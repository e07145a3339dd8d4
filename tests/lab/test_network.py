"""Links have the rate and the delay that were asked for, between hosts, both ways."""

import json
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.conftest import Cli

pytestmark = [pytest.mark.lab, pytest.mark.usefixtures("lab_machine")]

_ECHO = """
import socket
server = socket.create_server(("", 5999)); print("up", flush=True); peer, _ = server.accept()
peer.setsockopt(6, 1, 1)
while data := peer.recv(1): peer.send(data)
"""
_PING = """
import socket, sys, time
peer = socket.create_connection((sys.argv[1], 5999)); peer.setsockopt(6, 1, 1); times = []
for _ in range(40):
    start = time.monotonic(); peer.send(b"x"); peer.recv(1); times.append(time.monotonic() - start)
print(sorted(times)[20])
"""


@dataclass(frozen=True)
class Shaped:
    """A lab of two hosts with links of a certain shape."""

    cli: Cli
    config: str

    def start(self, host: str, *command: str) -> "subprocess.Popen[str]":
        argv = ["ssh", "-F", self.config, host, *command]
        return subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def rate_bits(self, source: str, target: str, *options: str) -> float:
        server = self.start(target, "iperf3 -s -1 --forceflush")
        assert server.stdout and "---" in server.stdout.readline()
        client = self.start(source, f"iperf3 -J -O 1 -t 3 -c {target} {' '.join(options)}")
        report = json.loads(client.communicate(timeout=60)[0])
        server.wait(timeout=60)
        return float(report["end"]["sum_received"]["bits_per_second"])

    def round_trip_s(self, source: str, target: str) -> float:
        echo = self.start(target, f"python3 -c '{_ECHO}'")
        assert echo.stdout and echo.stdout.readline() == "up\n"
        client = self.start(source, f"python3 - {target}")
        found = float(client.communicate(_PING, timeout=60)[0])
        echo.wait(timeout=60)
        return found


@pytest.fixture(scope="module", params=["veth", "delayed"])
def shaped(
    request: pytest.FixtureRequest, cli_env: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Shaped]:
    """200 Mbit/s, without and with a delay: the kernel's link, and the one in user space where it has no netem."""
    home = tmp_path_factory.mktemp("net")
    cli = Cli({**cli_env, "XDG_STATE_HOME": str(home), "XDG_CACHE_HOME": str(home)})
    cli("lab", "up", "-n", "3", "--rate", "200mbit", *(["--delay", "8ms"] if request.param == "delayed" else []))
    yield Shaped(cli, json.loads(cli("lab", "status", "--output", "json").stdout)["ssh_config"])
    cli("lab", "down")


@pytest.mark.parametrize("options", [pytest.param((), marks=pytest.mark.slow), ("-R",)], ids=["there", "back"])
def test_a_flow_gets_the_rate_and_not_more(shaped: Shaped, options: tuple[str, ...]) -> None:
    assert 0.85 * 200e6 < shaped.rate_bits("node01", "node02", *options) < 1.01 * 200e6


def test_two_senders_share_the_receivers_link(shaped: Shaped) -> None:
    rates: list[float] = []
    second = threading.Thread(target=lambda: rates.append(shaped.rate_bits("node01", "node03", "-R")))
    second.start()
    rates.append(shaped.rate_bits("node01", "node02", "-R"))
    second.join()
    # each is measured in its own seconds: one that begins late has the link alone for a part; unshared would be 400
    assert sum(rates) < 1.3 * 200e6


def test_the_round_trip_is_twice_the_delay(shaped: Shaped) -> None:
    link = json.loads(shaped.cli("lab", "status", "--output", "json").stdout)["link"]
    found = shaped.round_trip_s("node01", "node02")
    assert (found < 0.004) if link == "veth" else (0.016 <= found < 0.024)


def test_a_cut_link_cuts_that_host_only_and_heals(shaped: Shaped) -> None:
    shaped.cli("lab", "fault", "link-down", "node02")
    probe = "timeout 1 bash -c 'exec 3<>/dev/tcp/{}/22; head -c4 <&3' || echo cut"
    assert shaped.start("node01", probe.format("node02")).communicate()[0] == "cut\n"
    assert shaped.start("node01", probe.format("node03")).communicate()[0].startswith("SSH-")
    status = json.loads(shaped.cli("lab", "status", "--output", "json").stdout)
    assert status["faults"] == [{"kind": "link-down", "host": "node02"}]
    shaped.cli("lab", "heal", "node02")
    assert shaped.start("node01", probe.format("node02")).communicate()[0].startswith("SSH-")
    assert json.loads(shaped.cli("lab", "status", "--output", "json").stdout)["faults"] == []


def test_the_machine_gets_one_interface(shaped: Shaped) -> None:
    subnet = json.loads(shaped.cli("lab", "status", "--output", "json").stdout)["subnet"]
    routes = subprocess.run(["ip", "route", "show", subnet], capture_output=True, text=True, check=True).stdout
    assert routes.count("dev nl-") == 1
    interface = routes.split("dev ")[1].split()[0]
    addresses = subprocess.run(["ip", "-6", "address", "show", interface], capture_output=True, text=True, check=True)
    assert addresses.stdout == ""
    assert Path(f"/sys/class/net/{interface}").exists()
