"""A run that is cancelled or whose nodectl is killed leaves no process of Ansible's beside the next one."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from nodectl.provision.run import _end_left_over, _is_orphan


def started(*argv: str, **env: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(argv, env={**os.environ, **env}, start_new_session=True)


@pytest.mark.parametrize("way", ["cancelled", "killed"])
def test_its_processes_end_and_those_of_another_run_stay(way: str, tmp_path: Path) -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()
    (script := tmp_path / "ansible-playbook").write_text("import time\ntime.sleep(1000)\n")
    gone, here = (f"{socket.gethostname()} {pid}" for pid in (ended.pid, os.getpid()))
    playbook = (sys.executable, str(script))
    ours = started(*playbook, NODECTL_RUN="20261123T010203Z-7", NODECTL_CONTROLLER=gone)
    others = started(*playbook, NODECTL_RUN="20261123T010203Z-77", NODECTL_CONTROLLER=here)
    service = started("sleep", "1000", NODECTL_RUN="20261123T010203Z-77", NODECTL_CONTROLLER=gone)
    try:
        by_run = lambda process: process.environ().get("NODECTL_RUN") == "20261123T010203Z-7"  # noqa: E731
        _end_left_over(by_run if way == "cancelled" else _is_orphan)
        assert ours.wait(30) == -signal.SIGKILL
        assert (others.poll(), service.poll()) == (None, None)
    finally:
        for process in (ours, others, service):
            process.kill()
            process.wait()
