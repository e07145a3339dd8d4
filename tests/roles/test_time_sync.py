"""Who keeps the clock and how far it is off, from the services' own words; the kernel is asked for real."""

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.roles.run_module import run_module

# the forms that chronyc 4.3, timedatectl 252 and ntpq 4.2.8 print
TRACKING = (
    "A9FEA97B,169.254.169.123,4,1732182000.123456789,-0.000012345,0.000003456,0.000011111,"
    "-12.3,0.001,0.02,0.0005,0.0003,64.2,Normal\n"
)
UNSYNCED = "00000000,,0,0.000000000,0.000000000,0.0,0.0,0.0,0.0,0.0,1.0,1.0,0.0,Not synchronised\n"
TIMESYNC = """       Server: 192.0.2.1 (0.debian.pool.ntp.org)
Poll interval: 2min 8s (min: 32s; max 34min 8s)
         Leap: normal
       Offset: -1.161ms
        Delay: 12.9ms
"""
NTPQ = 'associd=0 status=0615 leap_none, sync_ntp, 1 event,\nversion="ntpd 4.2.8p15", stratum=2, offset=+2.500,\n'


@pytest.fixture(scope="module")
def clock(role_module: Callable[[str, str], ModuleType]) -> ModuleType:
    return role_module("time_sync", "time_host")


def test_each_service_tells_its_offset_in_its_own_form(clock: ModuleType) -> None:
    assert clock.chrony_offset(TRACKING) == pytest.approx(-0.000012345)
    assert clock.chrony_offset(UNSYNCED) is None and clock.chrony_offset("") is None
    assert clock.timesyncd_offset(TIMESYNC) == pytest.approx(-0.001161)
    assert clock.timesyncd_offset(TIMESYNC.replace("-1.161ms", "+2s")) == 2.0
    assert clock.timesyncd_offset("       Server: n/a\n") is None
    assert clock.ntp_offset(NTPQ) == pytest.approx(0.0025) and clock.ntp_offset("") is None


def test_services_are_found_by_their_processes(clock: ModuleType, tmp_path: Path) -> None:
    for number, name in enumerate(("sshd", "systemd-timesyn", "chronyd", "chronyd")):
        (tmp_path / str(100 + number)).mkdir()
        (tmp_path / str(100 + number) / "comm").write_text(name + "\n")
    assert clock.running_services(tmp_path) == ["chrony", "systemd-timesyncd"]


def state(**changes: Any) -> dict[str, Any]:
    known = {"owner": "chrony", "owners": ["chrony"], "settable": True, "synchronised": True, "offset_s": -0.0002}
    return {**known, **changes}


@pytest.mark.parametrize(
    ("changes", "install", "expected"),
    [
        ({}, True, {"owner": "ok", "clock": "ok"}),
        ({"offset_s": 3.0}, True, {"owner": "ok", "clock": "failed"}),
        ({"synchronised": False, "offset_s": None}, True, {"owner": "ok", "clock": "warning"}),
        ({"synchronised": None}, True, {"owner": "ok", "clock": "unknown"}),
        ({"owners": ["chrony", "ntp"]}, True, {"owner": "warning", "clock": "ok"}),
        ({"owner": "", "owners": []}, True, {"owner": "failed", "clock": "ok"}),
        ({"owner": "", "owners": []}, False, {"owner": "warning", "clock": "ok"}),
        ({"owner": "", "owners": [], "settable": False}, True, {"clock": "skipped"}),
    ],
)
def test_the_clock_is_judged(
    clock: ModuleType, changes: dict[str, Any], install: bool, expected: dict[str, str]
) -> None:
    findings = clock.judge(state(**changes), 1.0, install)
    assert {finding["subject"]: finding["status"] for finding in findings} == expected


def test_this_machine_is_asked_for_real(tmp_path: Path) -> None:
    answer = run_module("plugins/modules/time_host.py", {"max_offset_s": 1.0}, folder=tmp_path)
    assert answer["changed"] is False and answer["synchronised"] in (True, False)
    assert answer["findings"] and all(finding["check"] == "time_sync" for finding in answer["findings"])


@pytest.mark.lab
def test_a_host_in_a_namespace_has_no_clock_of_its_own(lab4: Any) -> None:
    inode = lab4.ssh(lab4.hosts[0], "stat -L -c %i /proc/self/ns/pid")
    assert int(inode) != 0xEFFFFFFC
