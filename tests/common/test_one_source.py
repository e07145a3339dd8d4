"""Numbers that programs on nodes and roles must repeat, held together with their source."""

import os
import pwd
import subprocess
from pathlib import Path

import pytest
import yaml

from nodectl.cli.root import run
from nodectl.common import node_paths
from nodectl.facts import host_files
from nodectl.payload.jobs import launcher
from nodectl.payload.jobs.folder import state_root

ROLES = Path(__file__).resolve().parents[2] / "roles"
DEFAULTS = {
    f"{path.parents[1].name}.{name}": value
    for path in sorted(ROLES.glob("*/defaults/main.yml"))
    for name, value in (yaml.safe_load(path.read_text()) or {}).items()
}


@pytest.mark.parametrize(
    ("ending", "path"),
    [("_venv", node_paths.VENV), ("launcher_path", node_paths.LAUNCHER), ("nccl_tests_folder", node_paths.NCCL_TESTS)],
)
def test_roles_install_where_nodectl_looks(ending: str, path: str) -> None:
    values = {name: value for name, value in DEFAULTS.items() if name.endswith(ending)}
    assert values
    assert set(values.values()) == {path}


def of_shell(text: str) -> str:
    """What a shell makes of it."""
    return subprocess.run(["sh", "-c", f'printf %s "{text}"'], capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("state_home", ["", "/var/lib/somewhere"])
def test_shell_and_payload_name_the_same_state_folder(state_home: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    monkeypatch.setenv("XDG_STATE_HOME", state_home)
    assert of_shell(node_paths.STATE_FOLDER) == state_root() == f"{state_home or '/home/me/.local/state'}/nodectl"


@pytest.mark.parametrize("home", [None, ""])
def test_without_a_home_it_is_that_of_the_password_database(home: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    monkeypatch.setenv("HOME", "") if home == "" else monkeypatch.delenv("HOME")
    of_login = pwd.getpwuid(os.geteuid()).pw_dir
    assert of_shell(node_paths.STATE_FOLDER) == state_root() == f"{of_login}/.local/state/nodectl"
    shell = subprocess.run(host_files._USER.argv, capture_output=True, text=True, check=False)
    assert f"{of_login}/.nccl.conf" in shell.stderr or shell.returncode == 0
    files: list[str] = []
    monkeypatch.setattr("nodectl.payload.jobs.launcher._names_it", files.append)
    launcher.nic_variables({"ib_hca": "=mlx5_0:1"}, {"HOME": ""} if home == "" else {})
    assert files == [f"{of_login}/.nccl.conf", "/etc/nccl.conf"]


@pytest.mark.parametrize("home", [None, ""])
def test_the_operators_side_has_one_too(home: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "") if home == "" else monkeypatch.delenv("HOME")
    with pytest.raises(SystemExit) as ended:
        run(["profile", "list"])
    assert ended.value.code == 0
    assert os.environ["HOME"] == pwd.getpwuid(os.geteuid()).pw_dir
