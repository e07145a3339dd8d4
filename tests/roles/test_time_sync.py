"""Who keeps the clock, by its processes; this machine is asked for real."""

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

from tests.conftest import LabUnderTest
from tests.roles.conftest import Play
from tests.roles.run_module import run_module


@pytest.fixture(scope="module")
def clock(role_module: Callable[[str, str], ModuleType]) -> ModuleType:
    return role_module("time_sync", "time_host")


def test_services_are_found_by_their_processes(clock: ModuleType, tmp_path: Path) -> None:
    for number, name in enumerate(("sshd", "systemd-timesyn", "chronyd", "chronyd")):
        (tmp_path / str(100 + number)).mkdir()
        (tmp_path / str(100 + number) / "comm").write_text(name + "\n")
    assert clock.running_services(tmp_path) == ["chrony", "systemd-timesyncd"]


FILE = "/etc/chrony/sources.d/nodectl.sources"


@pytest.mark.parametrize(
    ("conf", "version", "line"),
    [
        # Ubuntu 20.04: neither confdir nor sourcedir are known
        ("pool ntp.ubuntu.com iburst\n", "3.5", f"include {FILE}"),
        (f"pool ntp.ubuntu.com iburst\ninclude  {FILE}\n", "3.5", ""),
        ("sourcedir /etc/chrony/sources.d\n", "3.5", f"include {FILE}"),
        # Debian 12
        ("confdir /etc/chrony/conf.d\nsourcedir /run/chrony-dhcp\nsourcedir /etc/chrony/sources.d\n", "4.3", ""),
        # RHEL 9
        ("sourcedir /run/chrony-dhcp\n", "4.5", "sourcedir /etc/chrony/sources.d"),
        ("#sourcedir /etc/chrony/sources.d\n", "4.5", "sourcedir /etc/chrony/sources.d"),
    ],
)
def test_chronys_file_gets_the_line_that_its_version_reads(
    clock: ModuleType, conf: str, version: str, line: str
) -> None:
    assert clock.lacking(conf, FILE, version) == line


def test_this_machine_is_asked_for_real(tmp_path: Path) -> None:
    answer = run_module("plugins/modules/time_host.py", {}, folder=tmp_path)
    assert answer["changed"] is False and answer["settable"] in (True, False) and isinstance(answer["owner"], str)


@pytest.mark.lab
def test_a_host_in_a_namespace_has_no_clock_of_its_own(lab4: Any) -> None:
    inode = lab4.ssh(lab4.hosts[0], "stat -L -c %i /proc/self/ns/pid")
    assert int(inode) != 0xEFFFFFFC


@pytest.mark.lab
def test_servers_that_are_not_set_are_said(lab4: LabUnderTest, ansible_play: Callable[..., Play]) -> None:
    roles = [{"role": "nodectl.fleet.time_sync", "time_sync_servers": ["ntp1.example.org"]}]
    play = yaml.safe_dump([{"hosts": "all", "become": True, "gather_facts": False, "roles": roles}])
    done = ansible_play(play, lab4, lab4.hosts[0])
    assert done.changed == 0 and "not settable on this host, its clock is that of its machine" in done.text
