"""`nodectl provision` on booted Debian: systemd is process 1, reboots are real; the kernel and its modules are not."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.booted import snapshot
from tests.booted.conftest import Nodectl, Ran
from tests.booted.fleet import FREE_LOGIN, PASSWORD_LOGIN, ROOT_LOGIN, Fleet
from tests.booted.system import System
from tests.booted.wire import KERNEL_DEFAULTS

pytestmark = [pytest.mark.booted, pytest.mark.slow, pytest.mark.timeout(900)]

# a container has this machine's hard limits, so what is asked for lies below them; systemd's own defaults lie above
# these, which is enough for a profile, until the next boot reads the drop-in
LIMITS = {"memlock": {"value": "4096"}, "nofile": {"value": "12000"}}
LOGINS = {"box01": ROOT_LOGIN, "box02": PASSWORD_LOGIN, "box03": FREE_LOGIN}
ARTICLE = "4096 131072 16777216"
HIGHER = "4096 131072 33554432"


@dataclass(frozen=True, slots=True)
class Provisioned:
    """The fleet after its first run."""

    fleet: Fleet
    inventory: str
    shared_memory_outlived_before: bool
    before: dict[str, dict[str, str]]
    first: Ran


@pytest.fixture(scope="module")
def provisioned(boxes: Fleet, run_nodectl: Nodectl) -> Iterator[Provisioned]:
    """box03 has a higher value of its own, from a file that is not nodectl's."""
    boxes["box03"].run(
        f"echo 'net.ipv4.tcp_rmem = {HIGHER}' > /etc/sysctl.d/50-site.conf && sysctl -q -p /etc/sysctl.d/50-site.conf"
    )
    outlived = shared_memory_outlives_a_login(boxes["box01"])
    before = {name: snapshot.take(boxes[name]) for name in LOGINS}
    inventory = boxes.inventory(LOGINS, nodectl_tuning="article-20g", nodectl_overrides={"limits": LIMITS})
    first = run_nodectl(inventory, "provision", "--yes", password=boxes.password)
    yield Provisioned(boxes, inventory, outlived, before, first)


def shared_memory_outlives_a_login(system: System) -> bool:
    """A segment of a login that has ended, once systemd-logind has forgotten its user."""
    segment = system.out("ipcmk -M 4096", login=FREE_LOGIN).rpartition(" ")[2]
    gone = f"! loginctl list-users --no-legend | grep -qw {FREE_LOGIN}"
    system.wait_for(lambda: system.run(gone, check=False).status == 0, "rid of the login's user", 60)
    time.sleep(0.5)
    kept = system.run(f"ipcs -m -i {segment}", check=False)
    system.run(f"ipcrm -m {segment}", check=False)
    return "shmid" in kept.out


def limits_seen(system: System, login: str) -> dict[str, list[str]]:
    """Locked memory in KiB and open files (soft, hard) of a session over SSH, and of a unit."""
    asked = "ulimit -Sl; ulimit -Hl; ulimit -Sn; ulimit -Hn"
    unit = f"systemd-run --quiet --wait --pipe sh -c '{asked.replace('ulimit -Sn; ', '')}'"
    return {"session": system.out(asked, login=login).split(), "unit": system.out(unit).split()}


def test_a_first_run_changes_root_a_sudo_user_with_and_one_without_a_password(provisioned: Provisioned) -> None:
    first = provisioned.first
    assert first.status == 0, str(first)
    assert set(first.changed) == set(LOGINS) and min(first.changed.values()) > 5, str(first)
    assert provisioned.fleet.password not in first.said


def test_a_second_run_changes_nothing_and_check_reports_nothing(provisioned: Provisioned, run_nodectl: Nodectl) -> None:
    fleet, nothing = provisioned.fleet, dict.fromkeys(LOGINS, 0)
    checked = run_nodectl(provisioned.inventory, "provision", "--check", "--diff", password=fleet.password)
    assert checked.status == 0 and checked.changed == nothing, str(checked)
    second = run_nodectl(provisioned.inventory, "provision", "--yes", password=fleet.password)
    assert second.status == 0 and second.changed == nothing, str(second)


def test_nobody_can_provision_as_a_sudo_user_without_the_password(
    provisioned: Provisioned, run_nodectl: Nodectl
) -> None:
    only = provisioned.fleet.inventory({"box02": PASSWORD_LOGIN})
    ran = run_nodectl(only, "provision", "--yes", "--tags", "launcher")
    assert ran.status != 0 and "password" in ran.said.lower(), str(ran)


@pytest.mark.parametrize("name", LOGINS)
def test_sessions_and_units_get_the_limits(provisioned: Provisioned, name: str) -> None:
    seen = limits_seen(provisioned.fleet[name], LOGINS[name])
    assert seen["session"] == ["4096", "4096", "12000", "12000"]
    assert all(int(found) >= wanted for found, wanted in zip(seen["unit"], (4096, 4096, 12000), strict=True)), seen


def test_shared_memory_of_a_job_outlives_its_login(provisioned: Provisioned) -> None:
    assert not provisioned.shared_memory_outlived_before, "logind removes it by itself: this test would prove nothing"
    assert shared_memory_outlives_a_login(provisioned.fleet["box01"])


def test_a_higher_value_of_the_hosts_own_is_kept_and_reported(provisioned: Provisioned) -> None:
    assert f"net.ipv4.tcp_rmem: kept at {HIGHER}" in provisioned.first.said or HIGHER in provisioned.first.said
    assert live_rmem(provisioned.fleet["box03"]) == HIGHER
    assert live_rmem(provisioned.fleet["box01"]) == ARTICLE


def live_rmem(system: System) -> str:
    """As the kernel shows it."""
    return " ".join(system.out("cat /proc/sys/net/ipv4/tcp_rmem").split())


def test_after_a_reboot_the_values_stand(provisioned: Provisioned, run_nodectl: Nodectl) -> None:
    fleet = provisioned.fleet
    for name in LOGINS:
        fleet[name].reboot()
    assert live_rmem(fleet["box01"]) == live_rmem(fleet["box02"]) == ARTICLE
    assert live_rmem(fleet["box03"]) == HIGHER
    for name, login in LOGINS.items():
        assert limits_seen(fleet[name], login)["unit"] == ["4096", "4096", "12000"]
        assert fleet[name].out("systemctl is-system-running") == "running"
    checked = run_nodectl(provisioned.inventory, "provision", "--check", password=fleet.password)
    assert checked.status == 0 and checked.changed == dict.fromkeys(LOGINS, 0), str(checked)
    assert shared_memory_outlives_a_login(fleet["box01"])


def test_rollback_returns_everything_to_what_stood_before(provisioned: Provisioned, run_nodectl: Nodectl) -> None:
    fleet = provisioned.fleet
    after = {name: snapshot.take(fleet[name]) for name in LOGINS}
    assert all(len(snapshot.differences(provisioned.before[name], after[name])) > 5 for name in LOGINS)
    back = run_nodectl(provisioned.inventory, "rollback", "--to", "start", "--yes", password=fleet.password)
    assert back.status == 0, str(back)
    for name in LOGINS:
        assert snapshot.differences(provisioned.before[name], snapshot.take(fleet[name])) == [], name
    again = run_nodectl(provisioned.inventory, "rollback", "--to", "start", "--yes", password=fleet.password)
    assert again.status == 0 and again.changed == dict.fromkeys(LOGINS, 0), str(again)


def test_after_a_rollback_a_reboot_brings_nothing_back(provisioned: Provisioned) -> None:
    fleet = provisioned.fleet
    fleet["box01"].reboot()
    assert live_rmem(fleet["box01"]) == KERNEL_DEFAULTS["net.ipv4.tcp_rmem"]
    assert snapshot.differences(provisioned.before["box01"], snapshot.take(fleet["box01"])) == []
    assert not shared_memory_outlives_a_login(fleet["box01"])
