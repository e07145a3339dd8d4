"""What a process of this machine is known by."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from nodectl.common import process
from nodectl.common.paths import folders
from nodectl.errors import UsageError
from nodectl.provision.host_keys import socket_folder

# what `ioreg -rd1 -c IOPlatformExpertDevice` prints of a Mac, but for its other lines
_UUID = "9A4F2C11-0B1D-5E77-A0C3-2F5D6E7A8B90"
_IOREG = f'+-o J314sAP  <class IOPlatformExpertDevice>\n    {{\n      "IOPlatformUUID" = "{_UUID}"\n'


@pytest.fixture
def on_a_mac(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "machine", process.machine.__wrapped__)
    monkeypatch.setattr(sys, "platform", "darwin")


@pytest.mark.usefixtures("on_a_mac")
def test_a_mac_is_known_by_its_uuid_whatever_the_network_calls_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subprocess, "run", lambda argv, **_: subprocess.CompletedProcess(argv, 0, _IOREG, ""))
    assert process.machine() == _UUID


@pytest.mark.usefixtures("on_a_mac")
def test_a_mac_that_does_not_tell_is_known_by_its_name() -> None:
    assert process.machine() == socket.gethostname()


def test_a_run_has_ended_where_its_number_is_another_processs() -> None:
    this_run = process.controller(os.getpid())
    assert not process.has_ended(this_run)
    assert process.has_ended({**this_run, "start": f"{float(this_run['start']) - 3600:.2f}"})
    assert not process.has_ended({**this_run, "start": f"{float(this_run['start']) - 5:.2f}"}), "a clock was set"
    assert not process.has_ended({**this_run, "host": "elsewhere"})


def test_a_long_folder_for_temporary_files_holds_no_sockets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deep = tmp_path / ("x" * 60)
    deep.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(deep))
    folder = socket_folder()
    folder.rmdir()
    # beside it: a slash, Ansible's ten letters, and the ending that ssh puts on while it makes the socket
    assert len(str(folder)) + 1 + 10 + 17 < 104


def test_a_number_without_a_login_is_told_what_it_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME", "LOGNAME", "USER", "LNAME", "USERNAME", "SUDO_USER"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("pwd.getpwuid", lambda uid: {}[uid])
    monkeypatch.setattr("os.getuid", lambda: 12345)
    monkeypatch.setattr("os.geteuid", lambda: 12345)
    assert process.operator().split("@")[0] == process.login() == "12345"
    with pytest.raises(UsageError, match="user id 12345 has no login"):
        folders()
