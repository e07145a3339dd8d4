"""Notifications of a job whose operator is gone: told by the hosts, once and in order, to a receiver that was down."""

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

from tests.conftest import LabUnderTest
from tests.jobs.test_jobs_lab import Shell, lab, launcher_everywhere, shell  # noqa: F401 - fixtures

pytestmark = [pytest.mark.lab]

PORT = 8901
SECRET = "s3cr3t-0123456789"  # noqa: S105 - planted
RECEIVER = Path(__file__).resolve().parents[1] / "payload" / "receiver.py"
TOLD = "/tmp/told.jsonl"
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
def told(shell: Shell) -> Iterator[Shell]:  # noqa: F811
    folder = Path(shell.lab.inventory).parent
    (folder / "token").write_text(SECRET + "\n")
    (folder / "token").chmod(0o600)
    (folder / "nodectl.toml").write_text(
        f'[[notify]]\nname = "desk"\nurl = "http://127.0.0.1:{PORT}/hook"\ntoken_file = "token"\n'
    )
    yield shell
    (folder / "nodectl.toml").unlink()
    shell.lab.ssh(shell.lab.hosts[0], f"pkill -f '[r]eceiver.py {PORT}'; rm -f {TOLD}")


def listen(lab: LabUnderTest) -> None:  # noqa: F811
    """Start the receiver on the first host."""
    ssh = ["ssh", "-F", lab.ssh_config, lab.hosts[0]]
    subprocess.run([*ssh, "cat > /tmp/receiver.py"], input=RECEIVER.read_bytes(), check=True)
    subprocess.run([*ssh, f"setsid python3 /tmp/receiver.py {PORT} {TOLD} < /dev/null > /dev/null 2>&1 &"], check=True)


def heard(shell: Shell) -> list[dict[str, Any]]:  # noqa: F811
    text = shell.lab.ssh(shell.lab.hosts[0], f"cat {TOLD} 2>/dev/null")
    return [json.loads(line) for line in text.splitlines()]


def wait_for(shell: Shell, count: int, timeout_s: float) -> list[dict[str, Any]]:  # noqa: F811
    until = time.monotonic() + timeout_s
    while len(found := heard(shell)) < count:
        assert time.monotonic() < until, shell.run("notify", "pending").stdout
        time.sleep(1)
    return found


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
def test_a_job_without_its_operator_is_told_of_once_and_in_order_by_its_hosts(told: Shell) -> None:
    argv = told.launch_argv(FAILS, "--restarts", "1")
    whole = [sys.executable, "-m", "nodectl", "-i", told.lab.inventory, *argv]
    operator = subprocess.Popen(whole, env=told.nodectl.env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    job_id = begun(told)
    operator.send_signal(signal.SIGKILL)
    operator.wait()
    ended = told.wait_ended(job_id, 120)
    assert ended["state"] == "failed"
    time.sleep(60)
    waiting = json.loads(told.run("--output", "json", "notify", "pending").stdout)["messages"]
    assert [(row["receiver"], row["id"], row["waits"]) for row in waiting] == [
        ("desk", f"{job_id}-job-restart-2", True),
        ("desk", f"{job_id}-job-end-1", True),
    ]
    assert "refused" in waiting[0]["why"]
    kept = told.run("jobs", "clean", job_id)
    assert kept.returncode == 3 and "not delivered" in kept.stderr
    listen(told.lab)
    restart, end = wait_for(told, 2, 300)
    time.sleep(5)
    assert len(heard(told)) == 2
    assert (restart["id"], end["id"]) == (f"{job_id}-job-restart-2", f"{job_id}-job-end-1")
    assert (end["state"], end["job"], end["cause"]["rank"], end["host"]) == ("failed", job_id, 5, told.lab.hosts[2])
    assert restart["cause"]["rank"] == 5 and "rank 5" in end["text"]
    assert_no_secret_is_left(told, job_id)
    assert told.run("jobs", "clean", job_id).returncode == 0


def assert_no_secret_is_left(told: Shell, job_id: str) -> None:
    said = [told.run("--output", "json", "jobs", what, job_id) for what in ("show", "why", "logs")]
    assert not [done for done in said if SECRET in done.stdout + done.stderr]
    for host in told.lab.hosts:
        search = "grep -rl 's3cr[3]t-0' ~/.local/state/nodectl /proc/[0-9]*/environ /proc/[0-9]*/cmdline 2>/dev/null"
        assert told.lab.ssh(host, search) == ""


def test_a_receiver_can_be_tried_from_the_hosts(told: Shell) -> None:
    done = told.run("--output", "json", "-l", told.lab.hosts[1], "notify", "test", "--from-hosts")
    tried = json.loads(done.stdout)["messages"]
    assert done.returncode == 1 and [row["host"] for row in tried] == ["", told.lab.hosts[1]]
    assert all(row["why"] == "Connection refused" for row in tried) and SECRET not in done.stdout + done.stderr
