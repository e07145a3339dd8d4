"""A job of a login other than root whose supervisor, and guard, are killed or stopped."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.payload.fleet import RUN, Fleet, processes_of
from tests.payload.test_job_supervisor import ESCAPE, SLEEP, failures, left_over

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("setpriv") is None, reason="needs root and setpriv, to become another login"
)

_NOBODY = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
# a launcher as the deployed one is with torchrun: one process, which binds its ranks where it is told to
_BINDING = """#!{python}
import os, subprocess, sys, time
end = sys.argv.index("--")
python = os.environ["NODECTL_WITH_LAUNCHER"]
env = dict(os.environ, NODECTL_PYTHON=sys.executable)
first = int(sys.argv[sys.argv.index("--node-rank") + 1]) * 2
ranks = [
    subprocess.Popen([python, "-S", *sys.argv[end + 1:]], env=dict(env, RANK=str(first + n), LOCAL_RANK=str(n)))
    for n in range(2)
]
sys.exit(max(rank.wait() for rank in ranks))
"""


@pytest.fixture
def nobodys() -> Iterator[Fleet]:
    root = Path(tempfile.mkdtemp(prefix="nodectl-nobody-"))
    shutil.copytree(RUN.parent, root / "payload", ignore=shutil.ignore_patterns("__pycache__"))
    made = Fleet(root, 2, python="/usr/bin/python3", as_user=_NOBODY, run=root / "payload" / "run.py")
    made.launcher.write_text(made.launcher.read_text().replace(sys.executable, "/usr/bin/python3"))
    for rank in range(2):
        (root / f"host{rank}").mkdir()
        os.chown(root / f"host{rank}", 65534, 65534)
    root.chmod(0o755)
    yield made
    made.close()
    shutil.rmtree(root)


def pids(fleet: Fleet, rank: int, job_id: str) -> tuple[int, int]:
    state = fleet.report(rank, job_id)["state"]
    return state["pid"], state["containment"]["guard"]


@pytest.mark.parametrize("number", [signal.SIGKILL, pytest.param(signal.SIGSTOP, marks=pytest.mark.slow)])
def test_nothing_escapes_the_end_of_its_supervisor(nobodys: Fleet, number: int) -> None:
    job_id = nobodys.launch(ESCAPE)
    nobodys.wait_up(job_id, "up", 2)
    os.kill(pids(nobodys, 1, job_id)[0], number)
    nobodys.wait_settled(job_id)
    nobodys.wait(lambda: failures(nobodys.report(1, job_id)) == [("supervisor", None)])
    nobodys.wait(lambda: left_over(job_id) == [])


def test_ranks_die_with_supervisor_and_guard(nobodys: Fleet) -> None:
    launcher = nobodys.root / "binding"
    launcher.write_text(_BINDING.format(python="/usr/bin/python3"))
    launcher.chmod(0o755)
    job_id = nobodys.launch(SLEEP, launcher=str(launcher))
    nobodys.wait_up(job_id, "up", 2)
    assert len(processes_of(job_id)) == 6
    for pid in pids(nobodys, 1, job_id):
        os.kill(pid, signal.SIGKILL)
    time.sleep(2)
    assert len(processes_of(job_id)) <= 3
    nobodys.wait_settled(job_id)
    assert left_over(job_id) == []
