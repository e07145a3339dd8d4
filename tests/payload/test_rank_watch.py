"""Ranks are found among a job's processes however long their start takes."""

import os
import selectors
import subprocess
import sys
import time
from pathlib import Path

from nodectl.payload.jobs.contain import MARKER
from nodectl.payload.jobs.ranks import RankWatch

_FORK = """
import os, sys, time
if os.fork() == 0:
    while not os.path.exists(sys.argv[1]):
        time.sleep(0.01)
    os.execve("/bin/sleep", ["sleep", "1000"], {**os.environ, "RANK": "5", "LOCAL_RANK": "1"})
os.wait()
"""


def _children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def test_a_rank_whose_start_stalls_after_the_fork_is_found(tmp_path: Path) -> None:
    env = {**os.environ, MARKER: "job-1"}
    launcher = subprocess.Popen([sys.executable, "-S", "-c", _FORK, str(tmp_path / "go")], env=env)
    try:
        deadline = time.monotonic() + 60
        while not _children(launcher.pid) and time.monotonic() < deadline:
            time.sleep(0.01)
        (child,) = _children(launcher.pid)
        watch = RankWatch("job-1", lambda _: {launcher.pid, child}, selectors.DefaultSelector(), 1)
        watch.expect(100.0)
        watch.look(100.0)
        assert watch.running() == []
        (tmp_path / "go").touch()
        while not Path(f"/proc/{child}/cmdline").read_bytes().startswith(b"sleep") and time.monotonic() < deadline:
            time.sleep(0.01)
        watch.look(500.0)
        assert [(rank.pid, rank.rank, rank.local_rank) for rank in watch.running()] == [(child, 5, 1)]
        watch.close()
    finally:
        for pid in _children(launcher.pid):
            os.kill(pid, 9)
        launcher.kill()
        launcher.wait()
