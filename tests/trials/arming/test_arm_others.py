"""One trial at a time, none without a guard; and commands that only read leave it alone."""

from __future__ import annotations

import os
import signal
import time

import pytest

from tests.trials.arming.conftest import HOSTS, ArmFleet

pytestmark = [pytest.mark.lab]


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_nothing_is_changed_where_nobody_watches(arm_fleet: ArmFleet) -> None:
    with arm_fleet.trial(30) as trial:
        trial.wait("armed")
        for pid in arm_fleet.guards("node01"):
            os.kill(pid, signal.SIGKILL)
        (found,) = trial.on("small")
        assert found["host"] == "node01" and "nobody watches this host any more" in found["actual"], found
        assert arm_fleet.differences("node01") == [] and arm_fleet.rmem("node02") == "4096 131072 212992"
        time.sleep(20)
        assert set(trial.lost()) == {"node01"}
        trial.tell("end")
        assert trial.wait("left")["findings"] == []
    assert arm_fleet.differences() == []


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_one_trial_at_a_time_and_force_takes_the_other_off(arm_fleet: ArmFleet) -> None:
    with arm_fleet.trial(60) as first:
        first.wait("armed")
        first.on("small")
        with arm_fleet.trial(60) as second:
            refused = second.wait("armed")
            assert refused["hosts"] == [] and len(refused["findings"]) == 2
            assert all(
                "for 'a test' since" in each["actual"] and "--force" in each["remedy"] for each in refused["findings"]
            )
            second.tell("end")
            assert second.wait("left")["findings"] == []
        assert arm_fleet.rmem("node01") == "4096 131072 212992", "the first goes on"
        assert first.lost() == {}
        with arm_fleet.trial(60, "--force") as third:
            assert third.wait("armed")["hosts"] == list(HOSTS)
            assert arm_fleet.differences() == []
            assert all("another nodectl has taken the trial off" in each["actual"] for each in first.on("small"))
            first.tell("end")
            assert first.wait("left")["findings"] == []
            assert third.on("small") == []
            third.tell("end")
            assert third.wait("left")["findings"] == []
    assert arm_fleet.differences() == []


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_dead_trial_without_a_guard_is_named_and_taken_off_by_force(arm_fleet: ArmFleet) -> None:
    """What a power cut leaves where no systemd could start the guard again."""
    with arm_fleet.trial(60) as first:
        first.wait("armed")
        first.on("small")
        for host in HOSTS:
            for pid in arm_fleet.guards(host):
                os.kill(pid, signal.SIGKILL)
        first.process.kill()
    with arm_fleet.trial(60) as second:
        refused = second.wait("armed")
        assert refused["hosts"] == [] and all("nobody watches it" in each["actual"] for each in refused["findings"])
    assert arm_fleet.rmem("node01") == "4096 131072 212992", "refusing changes nothing"
    with arm_fleet.trial(60, "--force") as third:
        assert third.wait("armed")["hosts"] == list(HOSTS)
        third.tell("end")
        third.wait("left")
    assert arm_fleet.differences() == []
