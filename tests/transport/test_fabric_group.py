"""Fabric's connections and groups over nodectl's way to a host."""

import subprocess
import sys
from pathlib import Path

import pytest
from fabric import Group

from nodectl import fleet
from nodectl.errors import UnreachableError, UsageError
from nodectl.model.host import Host
from nodectl.transport.connection import CheckedConnection, CheckedGroup, Connections
from nodectl.transport.ssh_target import target_of
from tests.transport.sshd_server import Sshd


@pytest.fixture(autouse=True)
def state_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep nodectl's state out of the home folder."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def connection_to(host: Host) -> CheckedConnection:
    return Connections().to(host.name, target_of(host))


def test_runs_and_copies_through_fabric(sshd: Sshd, tmp_path: Path) -> None:
    local = tmp_path / "local"
    local.write_text("from the operator\n")
    with connection_to(sshd.host()) as connection:
        connection.put(str(local), str(tmp_path / "remote"))
        shown = connection.run(f"cat {tmp_path}/remote; exit 3", hide=True, warn=True, in_stream=False)
    assert (shown.stdout, shown.exited) == ("from the operator\n", 3)


def test_never_takes_an_unknown_host_key(sshd: Sshd, tmp_path: Path) -> None:
    stranger = sshd.host(ansible_ssh_common_args=f"-o UserKnownHostsFile={tmp_path}/none")
    with pytest.raises(UnreachableError, match="unknown host key"):
        connection_to(stranger).run("true", hide=True)


def test_environment_values_reach_the_command_as_they_are(sshd: Sshd) -> None:
    value = "two words; echo $HOME 'and a quote'"
    with connection_to(sshd.host()) as connection:
        shown = connection.run('printf %s "$VALUE"', env={"VALUE": value}, hide=True, in_stream=False)
    assert shown.stdout == value


def test_fleet_is_a_fabric_group_over_an_inventory(sshd: Sshd, tmp_path: Path) -> None:
    inventory = sshd.inventory(tmp_path, "web1\nweb2\ndb1")
    with fleet(inventory, limit="web1,web2") as group:
        assert isinstance(group, Group)
        results = group.run("echo $PPID", hide=True)
        again = group.run("echo $PPID", hide=True)
    assert {connection.host for connection in results} == {"web1", "web2"}
    sessions = {connection.host: done.stdout for connection, done in results.items()}
    assert sessions == {connection.host: done.stdout for connection, done in again.items()}
    assert sessions["web1"] != sessions["web2"]


def test_importing_nodectl_does_not_import_fabric() -> None:
    code = "import sys, nodectl; print(sorted({'fabric', 'paramiko', 'ansible'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("forks", [0, -1])
def test_less_than_one_host_at_a_time_is_refused(forks: int) -> None:
    with pytest.raises(UsageError, match=f"forks={forks}"):
        CheckedGroup((), forks)
