"""Fabric's Connection over nodectl's way to a host."""

from pathlib import Path

import pytest

from nodectl.errors import UnreachableError, UsageError
from nodectl.model.host import Host
from nodectl.transport.scripting import CheckedConnection
from tests.transport.sshd_server import Sshd


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


def test_refuses_a_host_that_is_not_reached_by_ssh() -> None:
    with pytest.raises(UsageError, match="local"):
        CheckedConnection(Host("here", "127.0.0.1", connection="local"))
