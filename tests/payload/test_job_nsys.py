"""Nsight Systems without it: a stand-in takes its command line."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from nodectl.common.resources import payload_dir

STAND_IN = """#!/bin/sh
echo "$@" >> "$HOME/calls"
for word; do case $word in --output=*) touch "${word#--output=}.nsys-rep" ;; --*|profile) ;; *) break ;; esac; done
while [ "${1#--}" != "$1" ] || [ "$1" = profile ]; do shift; done
exec "$@"
"""
SHOWS = "import os, sys; print(sys.argv[1:], 'PYTHON_EXEC' in os.environ)"


def test_a_rank_runs_under_it_and_sees_nothing_of_that(tmp_path: Path) -> None:
    program = tmp_path / "bin" / "nsys"
    program.parent.mkdir()
    program.write_text(STAND_IN)
    program.chmod(0o755)
    script = tmp_path / "show me.py"
    script.write_text(SHOWS)
    wrapper = str(payload_dir() / "jobs" / "with_nsys.sh")
    env = {
        **os.environ,
        "HOME": str(tmp_path),
        "PATH": f"{program.parent}:{os.environ['PATH']}",
        "PYTHON_EXEC": wrapper,
        "NODECTL_JOB_DIR": str(tmp_path),
    }
    for rank in ("4", "0"):
        argv = [wrapper, "-u", str(script), "a b", "--x"]
        done = subprocess.run(argv, env={**env, "RANK": rank}, capture_output=True, text=True, check=True)
        assert done.stdout == "['a b', '--x'] False\n"
        assert (tmp_path / "traces" / f"{rank}.nsys-rep").exists()
    calls = (tmp_path / "calls").read_text().splitlines()
    assert ["--stats=true" in call for call in calls] == [False, True]
