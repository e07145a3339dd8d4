"""Settings of Ansible that it cannot read are the operator's to correct, and are named."""

import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize(
    ("settings", "environ", "named"),
    [
        ("[defaults]\nforks = many\n", {}, "ansible.cfg"),
        ("[defaults\nforks = 3\n", {}, "ansible.cfg"),
        ("", {"ANSIBLE_FORKS": "x"}, "ANSIBLE_FORKS"),
    ],
)
def test_it_is_named_and_no_bug(tmp_path: Path, settings: str, environ: dict[str, str], named: str) -> None:
    (tmp_path / "ansible.cfg").write_text(settings)
    (tmp_path / "hosts.yml").write_text("all: {hosts: {here: {ansible_connection: local}}}\n")
    env = {**os.environ, **environ, "ANSIBLE_CONFIG": str(tmp_path / "ansible.cfg"), "XDG_STATE_HOME": str(tmp_path)}
    argv = [sys.executable, "-m", "nodectl", "-i", "hosts.yml", "health"]
    done = subprocess.run(argv, cwd=tmp_path, env=env, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 2, done.stderr
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("nodectl: ")]
    assert "Ansible's own settings" in line and named in line
    assert "internal error" not in done.stderr
