"""Numbers that programs on nodes and roles must repeat, held together with their source."""

import os
import subprocess
from pathlib import Path

import pytest
import yaml

from nodectl.common import node_paths
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


@pytest.mark.parametrize("state_home", ["", "/var/lib/somewhere"])
def test_shell_and_payload_name_the_same_state_folder(state_home: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    monkeypatch.setenv("XDG_STATE_HOME", state_home)
    script = f"printf %s {node_paths.STATE_FOLDER}"
    shell = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True, env=dict(os.environ))
    assert shell.stdout == str(state_root())
