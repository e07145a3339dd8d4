"""Runs ansible-playbook of this environment's Ansible."""

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

PROGRAM = str(Path(sys.executable).with_name("ansible-playbook"))


def ansible_playbook(*words: str, env: Mapping[str, str], cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """The ended program with its output; a failure is the test's to judge."""
    argv = [PROGRAM, *words]
    return subprocess.run(argv, cwd=cwd, env=env, capture_output=True, text=True, check=False, timeout=280)
