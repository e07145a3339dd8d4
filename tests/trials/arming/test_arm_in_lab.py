"""Whatever becomes of nodectl or of the way to a host: former values come back by themselves."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from pathlib import Path

import pytest

from tests.conftest import Cli, LabUnderTest
from tests.trials.arming.conftest import HOSTS, ArmFleet
from tests.trials.arming.process import descendants, started

pytestmark = [pytest.mark.lab]

TRIED = "4096 131072 212992"
# what a busy machine takes in addition to two leases
MARGIN_S = 25.0


def test_a_host_whose_nodectl_is_killed_restores_itself(nodectl: Cli, lab4: LabUnderTest) -> None:
    look = "cat /proc/sys/net/ipv4/tcp_rmem; ls -A /etc/sysctl.d /etc/nccl.conf /var/lib/nodectl 2>&1"
    before = lab4.ssh("node03", look)
    with started(lab4.inventory, 4, "--limit", "node03", env=nodectl.env) as trial:
        assert trial.wait("armed")["hosts"] == ["node03"]
        assert trial.on("small") == []
        assert TRIED in " ".join(lab4.ssh("node03", look).split())
        trial.process.kill()
        until = time.monotonic() + 8 + MARGIN_S
        while lab4.ssh("node03", look) != before:
            assert time.monotonic() < until
            time.sleep(0.1)


@pytest.mark.slow
def test_a_trial_that_ends_well_leaves_nothing(arm_fleet: ArmFleet) -> None:
    with arm_fleet.trial(20) as trial:
        assert trial.wait("armed")["findings"] == []
        assert trial.on("article-20g") == []
        (refused, other) = trial.on("no-such-profile")
        assert refused["status"] == other["status"] == "failed" and "no-such-profile" in refused["actual"]
        assert trial.on("stock") == []
        assert trial.lost() == {}
        trial.tell("end")
        assert trial.wait("left")["findings"] == []
    assert arm_fleet.differences() == []
    assert arm_fleet.left_of_trials() == ["", ""]


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_interrupted_it_restores_at_once(arm_fleet: ArmFleet, number: signal.Signals) -> None:
    with arm_fleet.trial(60) as trial:
        trial.wait("armed")
        trial.on("small")
        trial.process.send_signal(number)
        trial.wait("interrupted")
        assert trial.wait("left")["findings"] == []
    assert arm_fleet.differences() == []
    assert arm_fleet.left_of_trials() == ["", ""]


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("after_s", [1.0, 3.0, 5.0])
def test_a_laptop_that_sleeps_while_a_playbook_runs(arm_fleet: ArmFleet, after_s: float) -> None:
    """All its processes stop, and go on when it wakes: what they had still to set is not set any more."""
    with arm_fleet.trial(6) as trial:
        trial.wait("armed")
        trial.on("stock")
        trial.tell("on small")
        time.sleep(after_s)
        asleep = [trial.process.pid, *descendants(trial.process.pid)]
        for pid in asleep:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)
        time.sleep(12 + 1)
        arm_fleet.wait_back(MARGIN_S)
        for pid in asleep:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        trial.wait("on")
        assert arm_fleet.differences() == []
        assert set(trial.lost()) == set(HOSTS)
        again = trial.on("small")
        assert len(again) == 2 and all("by itself" in each["actual"] for each in again), again
        trial.tell("end")
        found = trial.wait("left")["findings"]
        assert {(each["host"], each["status"]) for each in found} == {(host, "warning") for host in HOSTS}, found
    assert arm_fleet.differences() == []


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_host_whose_link_is_cut(arm_fleet: ArmFleet) -> None:
    name = Path(arm_fleet.lab.inventory).parent.name
    with arm_fleet.trial(12) as trial:
        trial.wait("armed")
        trial.on("small")
        arm_fleet.cli("lab", "fault", "link-down", "node02", "--name", name)
        try:
            time.sleep(2 * 12 + 5)
            assert set(trial.lost()) == {"node02"}
            trial.tell("end")
            (found,) = trial.wait("left")["findings"]
            assert (found["host"], found["status"]) == ("node02", "unknown") and "by itself" in found["actual"]
        finally:
            arm_fleet.cli("lab", "heal", "--name", name)
    assert arm_fleet.differences() == []


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_next_trial_restores_what_a_dead_one_left(arm_fleet: ArmFleet) -> None:
    with arm_fleet.trial(600) as first:
        first.wait("armed")
        first.on("small")
        first.process.kill()
        with arm_fleet.trial(60) as second:
            assert second.wait("armed")["hosts"] == list(HOSTS)
            assert second.notes().count("were restored") == 2 and arm_fleet.differences() == []
            second.tell("end")
            assert second.wait("left")["findings"] == []
    assert arm_fleet.left_of_trials() == ["", ""]
