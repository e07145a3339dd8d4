"""One event of `make chaos` from end to end: that its last line is what it says, and that the others can be tried."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.torch_venv import torch_venv

pytestmark = [pytest.mark.lab, pytest.mark.slow, pytest.mark.timeout(900)]


def test_a_killed_rank_is_found_to_end_as_promised(lab_machine: None, cli_env: dict[str, str], tmp_path: Path) -> None:
    share = Path(cli_env["XDG_CACHE_HOME"], "nodectl", "lab-share", "venv")
    if Path(torch_venv()) != share:
        pytest.skip(f"no torch that a lab's hosts see: {share} is filled by `make test`")
    words = ["--events", "rank-killed", "--phases", "running", "--folder", str(tmp_path)]
    argv = [sys.executable, "-m", "scripts.chaos", *words]
    env = {**cli_env, "XDG_STATE_HOME": str(tmp_path / "state")}
    (tmp_path / "state").mkdir()
    done = subprocess.run(argv, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == {"events": 1, "passed": 1, "left_over": 0}
