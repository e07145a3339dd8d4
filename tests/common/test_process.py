"""What a process of this machine is known by."""

from pathlib import Path

import pytest

from nodectl.common import process
from nodectl.common.paths import folders
from nodectl.errors import UsageError
from nodectl.provision.host_keys import control_sockets


def test_a_long_folder_for_temporary_files_holds_no_sockets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deep = tmp_path / ("x" * 60)
    deep.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(deep))
    with control_sockets() as folder:
        # a slash, Ansible's ten letters, and the ending that ssh puts on while it makes the socket come in addition
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
