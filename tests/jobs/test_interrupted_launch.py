"""A launch that is interrupted on three lab hosts at moments of its start: the id is said, and nothing is left."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.jobs.test_jobs_lab import SLEEP, Shell, lab, launcher_everywhere, shell

__all__ = ["lab", "launcher_everywhere", "shell"]
pytestmark = [pytest.mark.lab]

_JOBS = "~/.local/state/nodectl/jobs"
_STARTING = re.compile(r"job (\S+): starting on 3 hosts\n")


class Launch:
    """A launch of a job with 4 MiB of code and a secret, whose id was just said."""

    def __init__(self, shell: Shell) -> None:
        self.shell = shell
        (shell.folder / "big").write_bytes(os.urandom(4 << 20))
        argv = [sys.executable, "-m", "nodectl", "-i", shell.lab.inventory, *shell.launch_argv(SLEEP, "--env", "TOKEN")]
        env = {**shell.nodectl.env, "TOKEN": "se'cret"}
        self.process = subprocess.Popen(argv, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert self.process.stderr is not None
        self.said = ""
        while not (match := _STARTING.search(self.said)):
            line = self.process.stderr.readline()
            assert line, self.said
            self.said += line
        self.id = match[1]

    def wait_for(self, what: str) -> None:
        """Until a shell's test of the job's folder on the last host holds."""
        until = time.monotonic() + 60
        test = what.format(folder=f"{_JOBS}/{self.id}", partial=f"{_JOBS}/.{self.id}.partial")
        while self.shell.lab.ssh(self.shell.lab.hosts[-1], f"{{ {test}; }} && echo yes") != "yes":
            assert time.monotonic() < until, self.said

    def end(self, number: int) -> int:
        self.process.send_signal(number)
        out, error = self.process.communicate(timeout=120)
        self.said += out + error
        return self.process.returncode

    def left(self) -> str:
        """Processes and folders of the job, and its secret, on all hosts."""
        look = f"ls -d {_JOBS}/*{self.id} {_JOBS}/.{self.id}.partial 2>/dev/null; grep -rls 'se.cret' {_JOBS}"
        return self.shell.left(self.id) + "".join(self.shell.lab.ssh(host, look) for host in self.shell.lab.hosts)


@contextmanager
def launched(shell: Shell) -> Iterator[Launch]:
    made = Launch(shell)
    try:
        yield made
    finally:
        made.process.kill()
        made.process.wait()


# each holds also when it is over
MOMENTS = ("true", "test -d {partial} || test -d {folder}", "test -d {folder}")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "moment"),
    [
        (signal.SIGINT, MOMENTS[1]),
        *(
            pytest.param(number, moment, marks=pytest.mark.slow)
            for number, moment in (
                *((signal.SIGINT, MOMENTS[0]), (signal.SIGINT, MOMENTS[2])),
                *((signal.SIGTERM, MOMENTS[1]), (signal.SIGHUP, MOMENTS[2])),
            )
        ),
    ],
)
def test_an_interrupted_start_is_undone_on_all_hosts(shell: Shell, number: int, moment: str) -> None:
    with launched(shell) as launch:
        launch.wait_for(moment)
        status = launch.end(number)
        if f"job {launch.id} runs on" in launch.said:  # this machine was slow to ask, and the start complete
            pytest.skip("the launch was complete before the signal")
        assert status == 130, launch.said
        assert f"job {launch.id}: the start was undone on 3 hosts" in launch.said
        assert launch.left() == ""


@pytest.mark.slow
@pytest.mark.parametrize("moment", [MOMENTS[1], pytest.param(MOMENTS[2], marks=pytest.mark.slow)])
def test_a_killed_launch_leaves_a_whole_job_or_none(shell: Shell, moment: str) -> None:
    with launched(shell) as launch:
        launch.wait_for(moment)
        launch.end(signal.SIGKILL)
        time.sleep(4)  # what was under way on the hosts ends with its connection
        listed = shell.run("--output", "json", "jobs", "list").stdout
        if launch.id in listed and shell.job(launch.id)["state"] == "running":
            pytest.skip("the launch was complete before the signal")
        until = time.monotonic() + 90  # a supervisor that never hears the others gives up after 30 s
        while shell.left(launch.id):
            assert time.monotonic() < until
        for command in ("stop", "clean") if launch.id in listed else ():
            done = shell.run("jobs", command, launch.id)
            assert done.returncode == 0, done.stderr
        assert launch.left() == ""
