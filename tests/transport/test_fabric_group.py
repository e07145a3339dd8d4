"""Fabric's connections and groups over nodectl's way to a host."""

import subprocess
import sys
from pathlib import Path

import pytest
from fabric import Group

from nodectl import fleet
from nodectl.errors import UnreachableError
from nodectl.transport.fabric_group import CheckedConnection, CheckedGroup
from tests.transport.sshd_server import Sshd


@pytest.fixture(autouse=True)
def state_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep nodectl's state out of the home folder."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def test_runs_and_copies_through_fabric(sshd: Sshd, tmp_path: Path) -> None:
    local = tmp_path / "local"
    local.write_text("from the operator\n")
    with CheckedConnection(sshd.host()) as connection:
        connection.put(str(local), str(tmp_path / "remote"))
        shown = connection.run(f"cat {tmp_path}/remote; exit 3", hide=True, warn=True, in_stream=False)
    assert (shown.stdout, shown.exited) == ("from the operator\n", 3)


def test_never_takes_an_unknown_host_key(sshd: Sshd, tmp_path: Path) -> None:
    stranger = sshd.host(ansible_ssh_common_args=f"-o UserKnownHostsFile={tmp_path}/none")
    with pytest.raises(UnreachableError, match="unknown host key"):
        CheckedConnection(stranger).run("true", hide=True)


def test_environment_values_reach_the_command_as_they_are(sshd: Sshd) -> None:
    value = "two words; echo $HOME 'and a quote'"
    with CheckedConnection(sshd.host()) as connection:
        shown = connection.run('printf %s "$VALUE"', env={"VALUE": value}, hide=True, in_stream=False)
    assert shown.stdout == value


@pytest.mark.parametrize("host", ["../out", "a/b", "..", "{port}"])
def test_what_is_fetched_stays_in_its_folder_whatever_the_host_is_called(sshd: Sshd, tmp_path: Path, host: str) -> None:
    (tmp_path / "log").write_text("its log\n")
    target = tmp_path / "in" / "folder"
    with CheckedGroup([sshd.host(host)]) as group:
        group.get(str(tmp_path / "log"), f"{target}/{{host}}.log")
        group.get(str(tmp_path / "log"), local=f"{target}/{{host}}/")
    assert sorted(path.parent.parent == target or path.parent == target for path in target.rglob("*.log")) == [True]
    assert len([path for path in target.rglob("*") if path.is_file()]) == 2
    assert not [path for path in tmp_path.glob("*") if "log" in path.name and path != tmp_path / "log"]


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
