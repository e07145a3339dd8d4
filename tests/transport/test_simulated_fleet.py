"""Ten simulated hosts (benchmarks/simulator.py), half of them bad, each in its own way: none holds up another."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from nodectl.model.host import Host
from nodectl.model.result import CommandResult
from nodectl.transport import connection
from nodectl.transport.fanout import fan_out
from nodectl.transport.inventory import read_inventory
from nodectl.transport.router import open_transport

pytest.importorskip("asyncssh", reason="the simulator is made of asyncssh: pip install -e .[dev]")

SIMULATOR = Path(__file__).parents[2] / "benchmarks" / "simulator.py"
KINDS = ("dead", "refused", "denied", "stuck", "drip")
# what a connection and a command may take here
DEADLINE_S = 6.0


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[tuple[Host, ...], dict[str, str]]]:
    """The hosts, and the kind of each bad one."""
    folder = tmp_path_factory.mktemp("fleet")
    bad = [word for kind in KINDS for word in (f"--{kind}", "1")]
    argv = [sys.executable, str(SIMULATOR), "--hosts", "10", "--folder", str(folder), "--delay", "0.2", *bad]
    process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    document = json.loads(process.stdout.readline())
    yield tuple(read_inventory([document["inventory"]]).hosts()), {kind: host for host, kind in document["bad"].items()}
    process.communicate(timeout=20)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "CONNECT_S", DEADLINE_S)


@pytest.mark.usefixtures("impatient")
def test_bad_hosts_are_told_and_hold_up_no_other(fleet: tuple[tuple[Host, ...], dict[str, str]]) -> None:
    hosts, bad = fleet
    transport, started = open_transport(), time.monotonic()
    results: dict[str, CommandResult] = {}
    ended: dict[str, float] = {}
    work = fan_out(hosts, lambda host: transport.run(host, ["hostname"], timeout_s=DEADLINE_S), len(hosts))
    for host, result in work:
        results[host.name], ended[host.name] = result, time.monotonic() - started
    transport.close()
    good = [host.name for host in hosts if host.name not in bad.values()]
    assert [results[name].stdout for name in good] == [f"{name}\n" for name in good]
    reasons = {kind: results[name].error for kind, name in bad.items()}
    assert all(not results[name].ok for name in bad.values())
    assert "no answer" in reasons["dead"] and "no answer" in reasons["stuck"]
    assert "refused" in reasons["refused"] and "permission denied" in reasons["denied"]
    assert "no exit within" in reasons["drip"]
    slow = [ended[bad[kind]] for kind in ("dead", "stuck", "drip")]
    assert max(ended[name] for name in good) < min(slow)
    # one after the other they would take three times as long
    assert max(slow) < 2.5 * DEADLINE_S
