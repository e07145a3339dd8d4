"""The script in docs/transport.md, followed to the letter on a lab."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import Cli, LabUnderTest

pytestmark = pytest.mark.lab
_PAGE = Path(__file__).parents[2] / "docs" / "transport.md"


def script() -> str:
    """The Python block of the page."""
    (block,) = re.findall(r"```python\n(# kernel_logs.py.*?)```", _PAGE.read_text(), re.DOTALL)
    return str(block)


def run_script(lab: LabUnderTest, folder: Path, env: dict[str, str]) -> "subprocess.CompletedProcess[str]":
    (folder / "kernel_logs.py").write_text(script())
    argv = [sys.executable, "kernel_logs.py", lab.inventory]
    return subprocess.run(argv, cwd=folder, env=env, capture_output=True, text=True, check=False)


def test_the_documented_script_runs(lab4: LabUnderTest, tmp_path: Path, cli_env: dict[str, str]) -> None:
    done = run_script(lab4, tmp_path, cli_env)
    assert done.returncode == 0, done.stderr
    assert dict(line.split() for line in done.stdout.splitlines()) == dict.fromkeys(lab4.hosts, os.uname().release)
    assert sorted(path.name for path in tmp_path.glob("*.log")) == [f"{host}.log" for host in lab4.hosts]


def test_another_host_key_is_refused(lab4: LabUnderTest, nodectl: Cli, tmp_path: Path, cli_env: dict[str, str]) -> None:
    name, victim = Path(lab4.inventory).parent.name, lab4.hosts[3]
    nodectl("lab", "fault", "--name", name, "host-key", victim)
    try:
        done = run_script(lab4, tmp_path, cli_env)
        assert (done.returncode, done.stdout) == (1, "")
        assert f"{victim}: " in done.stderr and "host key CHANGED" in done.stderr
    finally:
        nodectl("lab", "heal", "--name", name, victim)
