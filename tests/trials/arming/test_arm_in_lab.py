"""Whatever becomes of nodectl or of the way to a host: former values come back by themselves."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.conftest import Cli, LabUnderTest
from tests.trials.arming.process import Trial, descendants, started

pytestmark = [pytest.mark.lab]

HOST = "node03"
TRIED = "4096 131072 212992"
LOOK = "cat /proc/sys/net/ipv4/tcp_rmem; ls -A /etc/sysctl.d /etc/nccl.conf /var/lib/nodectl /run/nodectl-trial 2>&1"
# what a busy machine takes in addition to two leases
MARGIN_S = 25.0


@dataclass(frozen=True, slots=True)
class Tried:
    """A trial that has changed a host of the lab, and how the host stood before."""

    lab: LabUnderTest
    trial: Trial
    before: str

    def wait_back(self, within_s: float) -> None:
        """All is as before, but for the folder of trials, which is made once."""
        until = time.monotonic() + within_s + MARGIN_S
        while self.lab.ssh(HOST, LOOK) != self.before:
            assert time.monotonic() < until, self.lab.ssh(HOST, LOOK)
            time.sleep(0.2)


@pytest.fixture
def tried(nodectl: Cli, lab4: LabUnderTest) -> Iterator[Tried]:
    lab4.ssh(HOST, "mkdir -p /run/nodectl-trial")
    before = lab4.ssh(HOST, LOOK)
    with started(lab4.inventory, 4, "--limit", HOST, env=nodectl.env) as trial:
        assert trial.wait("armed")["hosts"] == [HOST]
        assert trial.on("small") == []
        assert TRIED in " ".join(lab4.ssh(HOST, LOOK).split())
        yield Tried(lab4, trial, before)


def test_a_host_whose_nodectl_is_killed_restores_itself(tried: Tried) -> None:
    tried.trial.process.kill()
    tried.wait_back(8)


@pytest.mark.slow
def test_interrupted_it_restores_at_once(tried: Tried) -> None:
    tried.trial.process.send_signal(signal.SIGTERM)
    tried.trial.wait("interrupted")
    assert tried.trial.wait("left")["findings"] == []
    tried.wait_back(0)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_laptop_that_sleeps_while_a_playbook_runs(tried: Tried) -> None:
    """All its processes stop, and go on when it wakes: what they had still to set is not set any more."""
    trial = tried.trial
    trial.on("stock")
    trial.tell("on small")
    time.sleep(3)
    asleep = [trial.process.pid, *descendants(trial.process.pid)]
    for number in (signal.SIGSTOP, signal.SIGCONT):
        for pid in asleep:
            with suppress(ProcessLookupError):
                os.kill(pid, number)
        tried.wait_back(8)
    trial.wait("on")
    assert set(trial.lost()) == {HOST}
    (again,) = trial.on("small")
    assert "restored itself" in again["actual"]
    trial.tell("end")
    (found,) = trial.wait("left")["findings"]
    assert (found["host"], found["status"]) == (HOST, "warning")
    tried.wait_back(0)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_host_whose_link_is_cut(tried: Tried, nodectl: Cli) -> None:
    name = Path(tried.lab.inventory).parent.name
    nodectl("lab", "fault", "link-down", HOST, "--name", name)
    try:
        time.sleep(13)
        assert set(tried.trial.lost()) == {HOST}
        tried.trial.tell("end")
        (found,) = tried.trial.wait("left")["findings"]
        assert (found["host"], found["status"]) == (HOST, "unknown") and "by itself" in found["actual"]
    finally:
        nodectl("lab", "heal", "--name", name)
    tried.wait_back(0)
