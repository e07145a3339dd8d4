"""The program that runs the others on a node."""

import subprocess
import sys

from nodectl.common.resources import payload_dir


def test_a_module_without_main_is_told_in_one_line() -> None:
    argv = [sys.executable, "-B", str(payload_dir() / "run.py"), "common.frames"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1 and done.stderr.endswith("frames.py is no program: it has no main(argv)\n")
    assert "Traceback" not in done.stderr
