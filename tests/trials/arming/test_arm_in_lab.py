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

# the guard's own second, and what putting back takes on a busy machine
MARGIN_S = 25.0


def test_a_host_whose_nodectl_is_killed_puts_itself_back(nodectl: Cli, lab4: LabUnderTest) -> None:
    """The short one: a file that every setting writes is written by hand."""
    look = "cat /etc/nccl.conf 2>&1"
    before = lab4.ssh("node03", look)
    with started(lab4.inventory, 4, "--limit", "node03", env=nodectl.env) as trial:
        assert trial.wait("armed")["hosts"] == ["node03"]
        lab4.ssh("node03", "echo NCCL_DEBUG=INFO > /etc/nccl.conf")
        assert lab4.ssh("node03", look) != before
        trial.process.kill()
        until = time.monotonic() + 4 + MARGIN_S
        while lab4.ssh("node03", look) != before:
            assert time.monotonic() < until
            time.sleep(0.1)
    said = "cat /var/lib/nodectl/trials/*/state; rm -rf /var/lib/nodectl/trials"
    assert "no sign of life" in lab4.ssh("node03", said)


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
    assert set(arm_fleet.left_of_trials().values()) == {"/var/lib/nodectl/runs:"}
    assert [arm_fleet.guards(host) for host in HOSTS] == [[], []]


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_interrupted_it_puts_back_itself(arm_fleet: ArmFleet, number: signal.Signals) -> None:
    with arm_fleet.trial(60) as trial:
        trial.wait("armed")
        trial.on("small")
        trial.process.send_signal(number)
        trial.wait("interrupted")
        assert trial.wait("left")["findings"] == []
    assert arm_fleet.differences() == []
    assert set(arm_fleet.left_of_trials().values()) == {"/var/lib/nodectl/runs:"}


@pytest.mark.slow
def test_the_next_trial_tells_what_happened(arm_fleet: ArmFleet) -> None:
    with arm_fleet.trial(6) as trial:
        trial.wait("armed")
        trial.process.kill()
        arm_fleet.wait_back(6 + MARGIN_S)
        time.sleep(4)
    with arm_fleet.trial(20) as trial:
        assert trial.wait("armed")["hosts"] == list(HOSTS)
        assert trial.notes().count("was put back by itself at") == 2, trial.notes()
        trial.tell("end")
        assert trial.wait("left")["findings"] == []
    assert set(arm_fleet.left_of_trials().values()) == {"/var/lib/nodectl/runs:"}


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("after_s", [1.0, 3.0, 5.0])
def test_killed_while_a_playbook_runs(arm_fleet: ArmFleet, after_s: float) -> None:
    with arm_fleet.trial(6) as trial:
        trial.wait("armed")
        trial.tell("on small")
        time.sleep(after_s)
        trial.process.kill()
        arm_fleet.wait_back(6 + MARGIN_S)
        time.sleep(5)
        assert arm_fleet.differences() == [], "nothing comes after"


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("after_s", [1.0, 3.0, 5.0])
def test_a_laptop_that_sleeps_while_a_playbook_runs(arm_fleet: ArmFleet, after_s: float) -> None:
    """All its processes stop, and go on when it wakes: what they had still to do is done no more."""
    with arm_fleet.trial(6) as trial:
        trial.wait("armed")
        trial.on("stock")
        trial.tell("on small")
        time.sleep(after_s)
        asleep = [trial.process.pid, *descendants(trial.process.pid)]
        for pid in asleep:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)
        arm_fleet.wait_back(6 + MARGIN_S)
        time.sleep(3)
        for pid in asleep:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        assert {each["host"] for each in trial.wait("on")["findings"]} == set(HOSTS)
        assert arm_fleet.differences() == []
        assert set(trial.lost()) == set(HOSTS)
        again = trial.on("small")
        assert len(again) == 2 and all("by itself" in each["actual"] for each in again), again
        trial.tell("end")
        found = trial.wait("left")["findings"]
        assert {each["host"] for each in found} == set(HOSTS)
        assert all(each["status"] == "warning" and "was put back by itself at" in each["actual"] for each in found), (
            found
        )
    assert arm_fleet.differences() == []
    assert set(arm_fleet.left_of_trials().values()) == {"/var/lib/nodectl/runs:"}


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_host_whose_link_is_cut(arm_fleet: ArmFleet) -> None:
    name = Path(arm_fleet.lab.inventory).parent.name
    with arm_fleet.trial(12) as trial:
        trial.wait("armed")
        trial.on("small")
        arm_fleet.cli("lab", "fault", "link-down", "node02", "--name", name)
        try:
            time.sleep(12 + 5)
            assert set(trial.lost()) == {"node02"}
            trial.tell("end")
            (found,) = trial.wait("left")["findings"]
            assert (found["host"], found["status"]) == ("node02", "unknown") and "by itself" in found["actual"]
        finally:
            arm_fleet.cli("lab", "heal", "--name", name)
    assert arm_fleet.differences() == []
    assert "state" not in arm_fleet.left_of_trials()["node01"]
