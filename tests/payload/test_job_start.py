"""A start that breaks off on a node, at any moment: nothing of it runs later, and no secret is on its disk."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.payload.fleet import RUN, Fleet, answer, processes_of

SLEEP = "import os, time\nos.write(1, b'up\\n')\ntime.sleep(1000)\n"
JOB = "20261123-010203-abcd"


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    made = Fleet(tmp_path, 2)
    yield made
    made.close()


class Upload:
    """A job's folder on its way to the first host, of which all but the last byte has come."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet
        package = fleet.jobs[JOB] = fleet.package(JOB, SLEEP, (), {})
        env = {**os.environ, "XDG_STATE_HOME": str(fleet.root / "host0")}
        argv = [sys.executable, "-S", str(RUN), "jobs.control", "start", JOB, "0"]
        self.process = subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env
        )
        assert self.process.stdin is not None
        self.process.stdin.write(package[:-40])
        self.process.stdin.flush()
        self.rest = package[-40:]
        fleet.wait(self.partial.exists)

    @property
    def partial(self) -> Path:
        return self.fleet.state(0) / "jobs" / f".{JOB}.partial"

    def names(self) -> list[str]:
        return sorted(path.name for path in (self.fleet.state(0) / "jobs").iterdir())


@pytest.fixture
def upload(fleet: Fleet) -> Iterator[Upload]:
    made = Upload(fleet)
    yield made
    made.process.kill()
    made.process.communicate()


def test_an_upload_is_listed_and_kept_while_it_goes_on(upload: Upload) -> None:
    (row,) = answer(upload.fleet.ctl(0, "list"))
    assert (row["id"], row["state"]["state"], row["alive"]) == (JOB, "partial", True)
    assert answer(upload.fleet.ctl(0, "clean"))[0]["removed"] is False
    _, error = upload.process.communicate(upload.rest, timeout=60)
    assert (upload.process.returncode, upload.names()) == (0, [JOB]), error


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_an_upload_that_is_ended_leaves_nothing(upload: Upload, number: signal.Signals) -> None:
    upload.process.send_signal(number)
    assert upload.process.wait(60) != 0
    assert upload.names() == []


def test_what_a_killed_upload_leaves_is_listed_and_removed(upload: Upload) -> None:
    upload.process.kill()
    upload.process.wait()
    (row,) = answer(upload.fleet.ctl(0, "list"))
    assert (row["id"], row["state"]["state"], row["alive"]) == (JOB, "partial", False)
    assert answer(upload.fleet.ctl(0, "clean"))[0] == {"id": JOB, "removed": True, "problem": ""}
    assert upload.names() == []


def test_a_start_that_was_undone_does_not_come_later(upload: Upload) -> None:
    upload.process.send_signal(signal.SIGSTOP)
    assert upload.fleet.ctl(0, "discard", JOB).returncode == 0
    upload.process.send_signal(signal.SIGCONT)
    upload.process.communicate(upload.rest, timeout=60)
    assert upload.process.returncode != 0
    assert upload.names() == [f".{JOB}.undone"]
    assert upload.fleet.start(0, JOB).returncode == 1
    upload.fleet.ctl(0, "clean", JOB)
    assert upload.names() == []


def test_a_start_on_some_of_the_hosts_ends_by_itself_and_no_secret_is_on_a_disk(fleet: Fleet) -> None:
    job_id = fleet.launch(SLEEP, start=[0], start_deadline_s=2.0)
    fleet.wait_settled(job_id, [0])
    assert fleet.report(0, job_id)["state"]["state"] == "failed"
    assert processes_of(job_id) == []
    kept = [path for path in fleet.root.rglob("*") if path.is_file() and b"$SECRET" in path.read_bytes()]
    assert kept == []


def test_no_value_of_a_variable_is_on_a_disk_while_the_job_runs(fleet: Fleet) -> None:
    job_id = fleet.launch("import os\nassert 'TOKEN' in os.environ\n" + SLEEP)
    fleet.wait_up(job_id, "up", 2)
    kept = [path for path in fleet.root.rglob("*") if path.is_file() and b"$SECRET" in path.read_bytes()]
    assert kept == []
