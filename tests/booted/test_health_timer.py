"""The health timer with its real tool, and the boot service of interfaces, on booted Debian: systemd starts both."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from nodectl import __version__
from nodectl.common.node_paths import LAB_SHARE
from tests.booted import snapshot
from tests.booted.conftest import STATE, Nodectl, Ran
from tests.booted.fleet import FREE_LOGIN, PASSWORD_LOGIN, ROOT_LOGIN, Fleet
from tests.booted.needs import CONTAINER_PROGRAMS, skip_unless_possible
from tests.booted.sessions import containers
from tests.booted.system import System
from tests.booted.tool_wheels import tool_wheelhouse

pytestmark = [pytest.mark.booted, pytest.mark.slow, pytest.mark.timeout(1200)]

WHEELS = "/srv/tool"
LOGINS = {"box01": ROOT_LOGIN, "box02": PASSWORD_LOGIN}
NOTHING = dict.fromkeys(LOGINS, 0)
TOOL, STORE = "/opt/nodectl/tool", "/opt/nodectl/tools"
FILE = "/var/lib/node_exporter/textfile_collector/nodectl.prom"
SERVICE, TIMER = "nodectl-health.service", "nodectl-health.timer"
PROFILES = {"nodectl_hardware": "lab-cpu", "nodectl_stack": "cpu", "nodectl_tuning": "article-20g"}
MTU = 1400
# a container has this machine's hard limits, so what is asked for lies below them
LIMITS = {"memlock": {"value": "4096"}, "nofile": {"value": "12000"}}
OVERRIDES = {
    "limits": LIMITS,
    "nic": {"mtu": {"value": MTU, "why": "not what a new interface has", "source": "this test"}},
}

UNIT_LIMITS = ["4096", "4096", "12000"]

# (metric, labels) → value
Metrics = dict[tuple[str, frozenset[tuple[str, str]]], float]


@dataclass(frozen=True, slots=True)
class Timed:
    """The fleet after its first run."""

    fleet: Fleet
    inventory: str
    before: dict[str, dict[str, str]]
    shared_memory_outlived_before: bool
    first: Ran


@pytest.fixture(scope="module")
def timed(
    booted_cache: None, lab_share: Path, run_nodectl: Nodectl, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Timed]:
    """Two containers that see the wheels as a folder and have no uv yet; one login is root, one needs a password."""
    skip_unless_possible(CONTAINER_PROGRAMS, "booted containers")
    wheels = tool_wheelhouse(tmp_path_factory.mktemp("tool"))
    with containers(STATE / "booted", tuple(LOGINS), {lab_share: LAB_SHARE, wheels: WHEELS}) as fleet:
        outlived = shared_memory_outlives_a_login(fleet["box01"])
        before = {name: snapshot.take(fleet[name]) for name in LOGINS}
        inventory = with_timer(fleet, wanted=True)
        first = run_nodectl(inventory, "provision", "--yes", password=fleet.password)
        yield Timed(fleet, inventory, before, outlived, first)


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


def with_timer(fleet: Fleet, *, wanted: bool) -> str:
    """An inventory that asks for the timer, or for none."""
    return fleet.inventory(
        LOGINS,
        **PROFILES,
        nodectl_overrides=OVERRIDES,
        nodectl_nics=["eth0"],
        nodectl_health_timer=wanted,
        nodectl_tool_wheelhouse=WHEELS,
        nodectl_uv="/opt/nodectl/bin/uv",
    )


def shown(system: System, unit: str, *properties: str) -> list[str]:
    """Properties of a unit as systemd tells them, in this order."""
    told = system.out(f"systemctl show {unit} --property={','.join(properties)}")
    values = dict(line.split("=", 1) for line in told.splitlines())
    return [values[name] for name in properties]


def look(system: System) -> tuple[int, Metrics]:
    """Have systemd run the service now; the exit status of `nodectl health`, and its file as node_exporter reads it."""
    system.run(f"rm -f {FILE}")
    system.run(f"systemctl start {SERVICE}", timeout_s=180)
    result, status = shown(system, SERVICE, "Result", "ExecMainStatus")
    assert result == "success", system.out(f"journalctl --no-pager -u {SERVICE} | tail -30")
    return int(status), metrics(system)


def metrics(system: System) -> Metrics:
    """The file, by the parser of Prometheus' own client."""
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(system.out(f"cat {FILE}") + "\n")
        for sample in family.samples
    }


def the_timer_waits(system: System) -> None:
    """Enabled, active, and it knows when to start what."""
    enabled, active, unit = shown(system, TIMER, "UnitFileState", "ActiveState", "Unit")
    assert (enabled, active, unit) == ("enabled", "active", SERVICE)

    def knows_when() -> bool:  # not while the service runs
        (when,) = shown(system, TIMER, "NextElapseUSecMonotonic")
        return re.fullmatch(r"(\d+(\.\d+)?(d|h|min|s|ms|us) ?)+", when) is not None

    system.wait_for(knows_when, "the timer to know its next time", 180)


def problems(found: Metrics, check: str) -> set[str]:
    """The subjects of a check's problems."""
    labels = [dict(labels) for name, labels in found if name == "nodectl_health_problem"]
    return {each["subject"] for each in labels if each["check"] == check}


def test_a_first_run_installs_the_tool_with_all_that_it_needs(timed: Timed) -> None:
    assert timed.first.status == 0, str(timed.first)
    assert timed.fleet.password not in timed.first.said
    assert min(timed.first.changed.values()) > 5, str(timed.first)
    for name in LOGINS:
        system = timed.fleet[name]
        assert __version__ in system.out(f"{TOOL}/bin/nodectl --version")
        assert system.out(f"readlink {TOOL}").startswith(f"{STORE}/")
        system.run(f"{TOOL}/bin/python -m uv pip check --python {TOOL}/bin/python")
        assert system.out(f"ls -A {STORE} | wc -l") == "1"
    checks = {(each["host"], each["check"], each["status"]) for each in timed.first.document["findings"]}
    assert {(name, "health_timer", "ok") for name in LOGINS} <= checks
    own = {status for _, check, status in checks if check in ("health_timer", "mtu", "nic_boot")}
    assert own <= {"ok", "skipped"}


@pytest.mark.parametrize("name", LOGINS)
def test_sessions_and_units_get_the_limits(timed: Timed, name: str) -> None:
    seen = limits_seen(timed.fleet[name], LOGINS[name])
    assert seen["session"] == ["4096", "4096", "12000", "12000"]
    # systemd's own defaults lie above these, until the next boot reads the drop-in
    assert all(int(found) >= int(wanted) for found, wanted in zip(seen["unit"], UNIT_LIMITS, strict=True)), seen


def test_shared_memory_of_a_job_outlives_its_login(timed: Timed) -> None:
    assert not timed.shared_memory_outlived_before, "logind removes it by itself: this test would prove nothing"
    assert shared_memory_outlives_a_login(timed.fleet["box01"])


def test_nobody_can_provision_as_a_sudo_user_without_the_password(timed: Timed, run_nodectl: Nodectl) -> None:
    ran = run_nodectl(timed.fleet.inventory({"box02": PASSWORD_LOGIN}), "provision", "--yes", "--tags", "launcher")
    assert ran.status != 0 and "password" in ran.said.lower(), str(ran)


@pytest.mark.parametrize("name", LOGINS)
def test_the_timer_waits_and_a_first_file_is_there(timed: Timed, name: str) -> None:
    the_timer_waits(timed.fleet[name])
    assert metrics(timed.fleet[name])


@pytest.mark.parametrize("name", LOGINS)
def test_the_service_writes_what_holds_for_this_host(timed: Timed, name: str) -> None:
    system = timed.fleet[name]
    status, found = look(system)
    assert system.out(f"stat -c '%a %U %G' {FILE}") == "644 root root"
    assert {dict(labels).get("host", name) for _, labels in found} == {name}
    profiles = {"host": name} | {key.removeprefix("nodectl_"): value for key, value in PROFILES.items()}
    assert found["nodectl_health_profiles_info", frozenset(profiles.items())] == 1
    now = float(system.out("date +%s"))
    assert now - 60 < found["nodectl_health_last_run_timestamp_seconds", frozenset()] <= now + 1
    (worst,) = [dict(key[1])["status"] for key, value in found.items() if key[0].endswith("_status") and value]
    assert status == {"failed": 1, "unknown": 3}.get(worst, 0)
    good = frozenset({"host": name, "check": "kernel_settings", "status": "ok"}.items())
    assert found["nodectl_health_findings", good] > 0
    assert problems(found, "kernel_settings") == problems(found, "mtu") == set()


def test_a_fault_is_in_the_file_and_goes_with_it(timed: Timed) -> None:
    system = timed.fleet["box01"]
    system.run("cp /proc/sys/net/ipv4/tcp_rmem /run/rmem && sysctl -q -w net.ipv4.tcp_rmem='4096 131072 262144'")
    system.run(f"ip link set eth0 mtu {MTU - 20}")
    try:
        status, found = look(system)
    finally:
        system.run(f"cat /run/rmem > /proc/sys/net/ipv4/tcp_rmem; ip link set eth0 mtu {MTU}")
    assert status == 1
    assert problems(found, "kernel_settings") == {"net.ipv4.tcp_rmem"}
    assert problems(found, "mtu") == {"eth0"}
    _, found = look(system)
    assert problems(found, "kernel_settings") == problems(found, "mtu") == set()


def test_the_timer_starts_the_service_by_itself(timed: Timed) -> None:
    """Its own interval is minutes: here it is told to elapse at once."""
    system = timed.fleet["box02"]
    ran = shown(system, SERVICE, "InvocationID")
    folder = f"/run/systemd/system/{TIMER}.d"
    system.run(f"mkdir -p {folder} && printf '[Timer]\\nOnActiveSec=0\\nRandomizedDelaySec=0\\n' > {folder}/now.conf")
    system.run(f"rm {FILE}; systemctl daemon-reload && systemctl restart {TIMER}")
    try:
        system.wait_for(lambda: system.run(f"test -s {FILE}", check=False).status == 0, "looked at by its timer", 180)
    finally:
        system.run(f"rm -r {folder}; systemctl daemon-reload && systemctl restart {TIMER}")
    assert shown(system, SERVICE, "InvocationID") != ran
    assert metrics(system)


def test_a_second_run_and_check_change_nothing(timed: Timed, run_nodectl: Nodectl) -> None:
    for options in (("--check",), ("--yes",)):
        again = run_nodectl(timed.inventory, "provision", *options, password=timed.fleet.password)
        assert again.status == 0 and again.changed == NOTHING, str(again)


def test_after_a_reboot_timer_and_interfaces_are_as_they_were(timed: Timed, run_nodectl: Nodectl) -> None:
    """A boot gives `eth0` a new MTU of 1500, so only the boot service can have set it."""
    for name in LOGINS:
        system = timed.fleet[name]
        assert system.out("cat /sys/class/net/eth0/mtu") == str(MTU)
        system.reboot()
        assert shown(system, "nodectl-nic.service", "ActiveState", "Result", "ExecMainStatus", "NRestarts") == [
            "active",
            "success",
            "0",
            "0",
        ]
        assert system.out("cat /sys/class/net/eth0/mtu") == str(MTU)
        assert limits_seen(system, LOGINS[name])["unit"] == UNIT_LIMITS
        assert system.out("systemctl is-system-running") == "running"
        the_timer_waits(system)
        _, found = look(system)
        assert problems(found, "mtu") == set()
    checked = run_nodectl(timed.inventory, "provision", "--check", password=timed.fleet.password)
    assert checked.status == 0 and checked.changed == NOTHING, str(checked)


def test_false_takes_timer_and_tool_away_and_rollback_brings_them_back(timed: Timed, run_nodectl: Nodectl) -> None:
    fleet, without = timed.fleet, with_timer(timed.fleet, wanted=False)
    tool = {name: fleet[name].out(f"readlink {TOOL}") for name in LOGINS}
    taken = run_nodectl(without, "provision", "--yes", password=fleet.password)
    assert taken.status == 0 and all(taken.changed.values()), str(taken)
    for name in LOGINS:
        assert shown(fleet[name], TIMER, "LoadState", "ActiveState") == ["not-found", "inactive"]
        assert shown(fleet[name], SERVICE, "LoadState", "ActiveState") == ["not-found", "inactive"]
        gone = f"{TOOL} {FILE} /etc/nodectl/health/inventory.json /opt/nodectl/provision/wheels/*"
        assert fleet[name].run(f"ls -d {gone}", check=False).out == ""
        assert fleet[name].out(f"ls -A {STORE} | wc -l") == "1", "what a rollback links to again"
    again = run_nodectl(without, "provision", "--yes", password=fleet.password)
    assert again.status == 0 and again.changed == NOTHING, str(again)

    back = run_nodectl(without, "rollback", "--yes", password=fleet.password)
    assert back.status == 0, str(back)
    for name in LOGINS:
        assert fleet[name].out(f"readlink {TOOL}") == tool[name]
        the_timer_waits(fleet[name])
        look(fleet[name])
    same = run_nodectl(timed.inventory, "provision", "--check", password=fleet.password)
    assert same.status == 0 and same.changed == NOTHING, str(same)


def test_rollback_to_the_start_returns_everything(timed: Timed, run_nodectl: Nodectl) -> None:
    fleet = timed.fleet
    assert all(len(snapshot.differences(timed.before[name], snapshot.take(fleet[name]))) > 5 for name in LOGINS)
    back = run_nodectl(timed.inventory, "rollback", "--to", "start", "--yes", password=fleet.password)
    assert back.status == 0, str(back)
    for name in LOGINS:
        assert snapshot.differences(timed.before[name], snapshot.take(fleet[name])) == [], name
        assert fleet[name].run(f"ls -d {STORE} {FILE}", check=False).out == ""
    fleet["box01"].reboot()
    assert snapshot.differences(timed.before["box01"], snapshot.take(fleet["box01"])) == []
    assert fleet["box01"].out("cat /sys/class/net/eth0/mtu") == "1500"
