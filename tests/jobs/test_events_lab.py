"""Events of a job whose operator is gone: its hosts report them, once and in order."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.jobs.test_jobs_lab import Shell, lab, launcher_everywhere, shell  # noqa: F401 - fixtures

pytestmark = [pytest.mark.lab]

EVENTS = "/tmp/nodectl-events"
# each attempt fails, of another cause
FAILS = """
import os, sys, time
os.write(1, b"up\\n")
time.sleep(3)
if os.environ["RANK"] == "5":
    os.kill(os.getpid(), 9) if os.environ["NODECTL_ATTEMPT"] == "1" else sys.exit(2)
time.sleep(1000)
"""


@pytest.fixture
def hooked(shell: Shell) -> Iterator[Shell]:  # noqa: F811
    settings = Path(shell.lab.inventory).parent / "nodectl.toml"
    settings.write_text(f'on_event = ["sh", "-c", "cat >> {EVENTS}; echo >> {EVENTS}"]\n')
    yield shell
    settings.unlink()
    for host in shell.lab.hosts:
        shell.lab.ssh(host, f"rm -f {EVENTS}")


def events(shell: Shell, host: str) -> list[dict[str, Any]]:  # noqa: F811
    return [json.loads(line) for line in shell.lab.ssh(host, f"cat {EVENTS} 2>/dev/null").splitlines()]


def begun(shell: Shell) -> str:  # noqa: F811
    """The id of the job that runs."""
    until = time.monotonic() + 60
    while True:
        for job in json.loads(shell.run("--output", "json", "jobs", "list").stdout)["jobs"]:
            if job["state"] == "running":
                return str(job["id"])
        assert time.monotonic() < until
        time.sleep(0.5)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_first_host_reports_a_job_whose_operator_is_gone(hooked: Shell) -> None:
    argv = hooked.launch_argv(FAILS, "--restarts", "1")
    whole = [sys.executable, "-m", "nodectl", "-i", hooked.lab.inventory, *argv]
    operator = subprocess.Popen(whole, env=hooked.nodectl.env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    job_id = begun(hooked)
    operator.send_signal(signal.SIGKILL)
    operator.wait()
    assert hooked.wait_ended(job_id, 120)["state"] == "failed"
    first, *others = hooked.lab.hosts
    until = time.monotonic() + 30
    while len(found := events(hooked, first)) < 2:
        assert time.monotonic() < until, found
        time.sleep(1)
    restart, end = found
    assert [(event["event"], event["job"]) for event in found] == [("job_restarted", job_id), ("job_ended", job_id)]
    assert (end["details"]["state"], end["details"]["cause"]["rank"], end["host"]) == ("failed", 5, hooked.lab.hosts[2])
    assert restart["details"]["cause"]["rank"] == 5 and "rank 5" in end["summary"]
    assert not any(events(hooked, host) for host in others)
    assert hooked.run("jobs", "clean", job_id).returncode == 0
