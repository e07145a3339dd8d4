"""A run that is cancelled leaves no process of Ansible's behind, whatever session it is in."""

import os
import signal
import subprocess

from nodectl.provision.run import _end_left_over


def started(run: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(["sleep", "1000"], env={**os.environ, "NODECTL_RUN": run}, start_new_session=True)


def test_its_processes_end_and_those_of_another_run_stay() -> None:
    ours, others = started("20261123T010203Z-7"), started("20261123T010203Z-77")
    try:
        _end_left_over("20261123T010203Z-7")
        assert ours.wait(30) == -signal.SIGKILL
        assert others.poll() is None
    finally:
        for process in (ours, others):
            process.kill()
            process.wait()
