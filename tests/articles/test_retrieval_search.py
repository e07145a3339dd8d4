"""The search itself, with torch: shards find what brute force finds, and every kind of wrong answer is noticed."""

import subprocess
from pathlib import Path

from nodectl.common.resources import payload_dir
from tests.torch_venv import torch_venv

_SCRIPT = Path(__file__).with_name("search_script.py")


def test_search_and_check_in_torch() -> None:
    python = Path(torch_venv()) / "bin" / "python"
    done = subprocess.run([python, _SCRIPT, payload_dir().parent], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "all held\n"), done.stderr
