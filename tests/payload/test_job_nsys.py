"""Nsight Systems without it: a stand-in takes its command line."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from nodectl.payload.jobs import nsys

STAND_IN = """#!/bin/sh
echo "$@" >> "$HOME/calls"
for word; do case $word in --output=*) touch "${word#--output=}.nsys-rep" ;; --*|profile) ;; *) break ;; esac; done
while [ "${1#--}" != "$1" ] || [ "$1" = profile ]; do shift; done
exec "$@"
"""


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Its folder: `calls` are the command lines it got."""
    program = tmp_path / "bin" / "nsys"
    program.parent.mkdir()
    program.write_text(STAND_IN)
    program.chmod(0o755)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    return tmp_path


def test_a_rank_runs_under_it_and_sees_nothing_of_that(stand_in: Path, tmp_path: Path) -> None:
    (tmp_path / "traces").mkdir()
    script = tmp_path / "show me.py"
    shows = (
        "import os, sys; print(sys.argv[1:], [name for name in os.environ if 'NSYS' in name or name == 'PYTHON_EXEC'])"
    )
    script.write_text(shows)
    env = {**os.environ, **nsys.environment(), "NODECTL_JOB_DIR": str(tmp_path), "RANK": "4"}
    done = subprocess.run(
        [env["PYTHON_EXEC"], "-u", str(script), "a b", "--x"], env=env, capture_output=True, text=True, check=True
    )
    assert done.stdout == "['a b', '--x'] []\n"
    shown = f"profile {env['NODECTL_NSYS_OPTIONS']} --output={tmp_path}/traces/4 "
    assert (stand_in / "calls").read_text().startswith(shown)
    assert (tmp_path / "traces" / "4.nsys-rep").exists()
    subprocess.run([env["PYTHON_EXEC"], "-c", ""], env={**env, "RANK": "0"}, check=True)
    assert ["--stats=true" in call for call in (stand_in / "calls").read_text().splitlines()] == [False, True]
