"""Who keeps the clock, by its processes; this machine is asked for real."""

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.roles.run_module import run_module


@pytest.fixture(scope="module")
def clock(role_module: Callable[[str, str], ModuleType]) -> ModuleType:
    return role_module("time_sync", "time_host")


def test_services_are_found_by_their_processes(clock: ModuleType, tmp_path: Path) -> None:
    for number, name in enumerate(("sshd", "systemd-timesyn", "chronyd", "chronyd")):
        (tmp_path / str(100 + number)).mkdir()
        (tmp_path / str(100 + number) / "comm").write_text(name + "\n")
    assert clock.running_services(tmp_path) == ["chrony", "systemd-timesyncd"]


def test_this_machine_is_asked_for_real(tmp_path: Path) -> None:
    answer = run_module("plugins/modules/time_host.py", {}, folder=tmp_path)
    assert answer["changed"] is False and answer["settable"] in (True, False) and isinstance(answer["owner"], str)


@pytest.mark.lab
def test_a_host_in_a_namespace_has_no_clock_of_its_own(lab4: Any) -> None:
    inode = lab4.ssh(lab4.hosts[0], "stat -L -c %i /proc/self/ns/pid")
    assert int(inode) != 0xEFFFFFFC
