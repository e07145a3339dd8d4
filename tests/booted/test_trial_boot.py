"""A trial on booted Debian: systemd's timer restores live values, and so do a reboot and a power cut."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

from tests.booted import snapshot
from tests.booted.fleet import FREE_LOGIN, ROOT_LOGIN, Fleet
from tests.booted.system import System
from tests.trials.arming.process import Trial, started

pytestmark = [pytest.mark.booted, pytest.mark.slow, pytest.mark.timeout(900)]

# one renews as root, the other as a login that needs sudo for all else
LOGINS = {"box01": ROOT_LOGIN, "box03": FREE_LOGIN}
BY_HAND, TRIED = "4096 131072 5242880", "4096 131072 212992"


@dataclass(frozen=True, slots=True)
class Boxes:
    """Two containers, one with a value that was set by hand, as they stood before any trial."""

    fleet: Fleet
    inventory: str
    env: Mapping[str, str]
    before: dict[str, dict[str, str]]

    @contextmanager
    def trial(self, lease_s: float, *options: str) -> Iterator[Trial]:
        """Armed, and with a setting on."""
        with started(self.inventory, lease_s, *options, env=self.env) as trial:
            assert trial.wait("armed")["hosts"] == list(LOGINS), trial.heard
            assert trial.on("small") == []
            assert {rmem(self.fleet[name]) for name in LOGINS} == {TRIED}
            yield trial

    def assert_as_before(self) -> None:
        """By the script, and without a unit of ours."""
        for name in LOGINS:
            assert snapshot.differences(self.before[name], snapshot.take(self.fleet[name])) == [], name
            assert self.fleet[name].out("systemctl is-system-running") == "running", name


@pytest.fixture(scope="module")
def trial_boxes(boxes: Fleet, cli_env: Mapping[str, str]) -> Boxes:
    boxes["box01"].run(f"sysctl -qw net.ipv4.tcp_rmem='{BY_HAND}'")
    before = {name: snapshot.take(boxes[name]) for name in LOGINS}
    return Boxes(boxes, boxes.inventory(LOGINS), cli_env, before)


def power_cut(box: System) -> None:
    """Gone in an instant, no unit is stopped and nothing written; and on again."""
    before = box.boot_id()
    box.run("systemd-run --quiet --on-active=1 --timer-property=AccuracySec=100ms systemctl reboot --force --force")

    def again() -> bool:
        said = box.run("cat /proc/sys/kernel/random/boot_id", check=False)
        return said.status == 0 and said.out != before

    time.sleep(3)
    box.wait_for(again, "on again", 120)
    box.wait_up(120)


def rmem(system: System) -> str:
    """As the kernel shows it."""
    return " ".join(system.out("cat /proc/sys/net/ipv4/tcp_rmem").split())


def timers(system: System) -> str:
    """The timers of trials that systemd knows."""
    return system.out("systemctl list-timers --all --no-legend 'nodectl-trial-*'").strip()


def test_rebooted_in_the_middle_all_is_as_before(trial_boxes: Boxes) -> None:
    """The value that was set by hand is gone too: it was a live one."""
    fleet = trial_boxes.fleet
    with trial_boxes.trial(600) as trial:
        assert all(timers(fleet[name]) for name in LOGINS)
        trial.process.kill()
        fleet["box03"].reboot()
        power_cut(fleet["box01"])
    assert all(rmem(fleet[name]) != TRIED and not timers(fleet[name]) for name in LOGINS)
    fleet["box01"].run(f"sysctl -qw net.ipv4.tcp_rmem='{BY_HAND}'")
    trial_boxes.assert_as_before()


def test_the_timer_restores_what_a_killed_nodectl_left(trial_boxes: Boxes) -> None:
    fleet = trial_boxes.fleet
    with trial_boxes.trial(8) as trial:
        time.sleep(20)
        assert trial.lost() == {}
        trial.process.kill()
        for name in LOGINS:
            system = fleet[name]
            system.wait_for(lambda system=system: rmem(system) != TRIED, "back", 16 + 30)  # type: ignore[misc]
            system.wait_for(lambda system=system: not timers(system), "rid of the timer", 90)  # type: ignore[misc]
    trial_boxes.assert_as_before()


def test_without_sshd_a_host_restores_itself_and_a_trial_that_ends_leaves_no_timer(trial_boxes: Boxes) -> None:
    fleet = trial_boxes.fleet
    with trial_boxes.trial(10) as trial:
        fleet["box03"].run(
            "systemd-run --quiet sh -c 'systemctl stop ssh.socket ssh.service; pkill -x sshd; sleep 35;"
            " systemctl start ssh.service'",
            check=False,
        )
        time.sleep(27)
        assert set(trial.lost()) == {"box03"}
        trial.tell("end")
        (found,) = trial.wait("left")["findings"]
        assert found["host"] == "box03" and found["status"] == "unknown", found
    fleet["box03"].wait_for(lambda: rmem(fleet["box03"]) != TRIED, "back", 60)
    fleet["box03"].wait_for(lambda: not timers(fleet["box03"]), "rid of the timer", 90)
    trial_boxes.assert_as_before()
