"""Two lab hosts for trials of their own, and how they stood before any."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

import pytest

from nodectl.common.resources import share_dir
from tests.conftest import Cli, LabUnderTest
from tests.node_snapshot import compare, fenced
from tests.trials.arming.process import Trial, started

SNAPSHOT = Path(__file__).parents[2] / "node_snapshot.py"
EXCEPTIONS = fenced((share_dir() / "docs" / "rollback.md").read_text(), "exceptions")
HOSTS = ("node01", "node02")
# a snapshot takes seconds on a busy machine: this tells when it is time for one
GLANCE = "cat /proc/sys/net/ipv4/tcp_rmem"
Shots = dict[str, dict[str, str]]


@dataclass(frozen=True, slots=True)
class ArmFleet:
    """Two lab hosts with values of their own, and how they stood before any trial."""

    lab: LabUnderTest
    cli: Cli
    before: Shots
    glance: dict[str, str]

    def trial(self, lease_s: float, *options: str) -> AbstractContextManager[Trial]:
        """A trial that arms the hosts; what is left of it ends with the block."""
        return started(self.lab.inventory, lease_s, *options, env=self.cli.env)

    def snapshot(self) -> Shots:
        """Each host by the script that knows nothing of records, and what nodectl's own folder holds."""
        shots = {}
        for host in HOSTS:
            argv = ["ssh", "-F", self.lab.ssh_config, host, "python3 - take"]
            text = SNAPSHOT.read_text()
            done = subprocess.run(argv, input=text, capture_output=True, text=True, timeout=60, check=True)
            shots[host] = json.loads(done.stdout)
        return shots

    def differences(self, *hosts: str) -> list[str]:
        """What is not as before on these hosts."""
        now = self.snapshot()
        return [
            f"{host}: {line}" for host in hosts or HOSTS for line in compare(self.before[host], now[host], EXCEPTIONS)
        ]

    def wait_back(self, within_s: float) -> float:
        """Seconds until what these trials change is back on all hosts, and then all is as before."""
        started = time.monotonic()
        while {host: self.lab.ssh(host, GLANCE) for host in HOSTS} != self.glance:
            passed_s = time.monotonic() - started
            assert passed_s < within_s, self.differences()
            time.sleep(0.3)
        passed_s = time.monotonic() - started
        assert self.differences() == []
        return passed_s

    def rmem(self, host: str) -> str:
        """TCP's receive buffers, as the kernel shows them."""
        return " ".join(self.lab.ssh(host, "cat /proc/sys/net/ipv4/tcp_rmem").split())

    def left_of_trials(self) -> list[str]:
        """What lies in the folder of trials on each host."""
        return [self.lab.ssh(host, "ls /run/nodectl-trial 2>/dev/null") for host in HOSTS]


@pytest.fixture(scope="session")
def arm_lab(nodectl: Cli, lab_machine: None) -> Iterator[ArmFleet]:
    """Two hosts that no other test uses, with values of their own."""
    name = f"arm-{os.getpid()}"
    inventory = nodectl("lab", "up", "-n", "2", "--name", name).stdout.strip()
    status = json.loads(nodectl("lab", "status", "--name", name, "--output", "json").stdout)
    lab = LabUnderTest(inventory, status, HOSTS, status["ssh_config"])
    lab.ssh("node01", "sysctl -qw net.ipv4.tcp_rmem='4096 131072 6291456'")
    made = ArmFleet(lab, nodectl, {}, {host: lab.ssh(host, GLANCE) for host in HOSTS})
    made.before.update(made.snapshot())
    yield made
    nodectl("lab", "down", "--name", name)


@pytest.fixture
def arm_fleet(arm_lab: ArmFleet) -> Iterator[ArmFleet]:
    """Each test leaves the hosts as they were made; a trial restores what a failed test left."""
    yield arm_lab
    if any(arm_lab.left_of_trials()):
        with arm_lab.trial(20) as trial:
            trial.wait("armed")
            trial.tell("end")
            trial.wait("left")
