"""A job's state on a full disk, cut, or of another version: the job can be seen, ended and removed all the same."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from nodectl.payload.jobs import folder as folders
from nodectl.payload.jobs.failures import first
from tests.payload.fleet import Fleet, answer, processes_of

SLEEP = "import os, time\nos.write(1, b'up\\n')\ntime.sleep(1000)\n"
# the ranks of the first host end without a word once its disk is full
FAILS = """
import os, time
os.write(1, b'up\\n')
while not os.path.exists(os.environ['NODECTL_JOB_DIR'] + '/../../../full'): time.sleep(0.1)
os.write(1, b'x' * 300_000) if os.environ['RANK'] == '0' else None
os._exit(3)
"""


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    made = Fleet(tmp_path, 2)
    yield made
    made.close()


@pytest.fixture
def small_disk(fleet: Fleet) -> Iterator[Path]:
    """The first host's state folder on a disk of its own, of 2 MiB."""
    path = fleet.root / "host0"
    path.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=2m,mode=700", "tmpfs", str(path)]
    if os.geteuid() or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("no file system may be mounted here")
    yield path
    fleet.close()
    subprocess.run(["umount", "-l", str(path)], check=True)


def fill(disk: Path) -> None:
    """Take every byte that is left."""
    with contextlib.suppress(OSError), (disk / "filler").open("wb", buffering=0) as file:
        for size in (1 << 16, 1 << 12, 1):
            with contextlib.suppress(OSError):
                while True:
                    file.write(b"x" * size)
    assert os.statvfs(disk).f_bavail == 0


def test_a_job_fails_in_good_order_on_a_full_disk_and_says_so(fleet: Fleet, small_disk: Path) -> None:
    job_id = fleet.launch(FAILS)
    fleet.wait_up(job_id, "up", 2)
    fill(small_disk)
    (small_disk / "full").touch()  # a name takes no space of a tmpfs
    fleet.wait_settled(job_id)
    reports = fleet.reports(job_id)
    assert [(report["state"]["state"], report["state"]["final"]) for report in reports] == [("failed", True)] * 2
    cause = first(reports[0]["state"]["failures"])
    assert cause is not None
    assert "no space is left on the file system of" in cause["message"]
    assert "xxxx" not in cause["message"]
    assert processes_of(job_id) == []


def test_states_are_written_without_end_on_a_full_disk(fleet: Fleet, small_disk: Path) -> None:
    job_id = fleet.launch(SLEEP)
    job = folders.JobFolder(job_id)
    job.path = str(fleet.state(0) / "jobs" / job_id)
    fill(small_disk)
    for number in range(20):
        job.write_state({"state": "running", "final": False, "number": number})
        assert job.state()["number"] == number
    (small_disk / "filler").unlink()
    job.write_state({"state": "running", "final": False, "number": 20})
    assert job.state()["number"] == 20


_UP = '{"state": "running", "final": false, '


@pytest.mark.parametrize(
    "text",
    [
        "\0" * 200,
        '{"state": 1}',
        _UP + '"pid": null}',
        _UP + '"containment": []}',
        _UP + '"containment": {"segments": [1]}}',
        _UP + '"failures": null}',
        "[" * 200_000,
    ],
    ids=["zeros", "number", "no pid", "no containment", "segments", "failures", "nested"],
)
def test_a_job_whose_state_was_lost_is_seen_stopped_and_removed(fleet: Fleet, text: str) -> None:
    job_id = fleet.launch(SLEEP)
    fleet.wait_up(job_id, "up", 2)
    (fleet.state(0) / "jobs" / job_id / "state.json").write_text(text)
    report = fleet.report(0, job_id)
    assert (report["state"]["state"], report["alive"]) == ("running", True)
    assert report["processes"] >= 2 and "state.json" in report["problem"]
    assert answer(fleet.ctl(0, "stop", job_id))[0]["state"]["final"] is True
    fleet.wait_settled(job_id)
    assert processes_of(job_id) == []
    assert answer(fleet.ctl(0, "clean", job_id))[0]["removed"] is True


def test_a_job_of_another_version_is_named_and_can_be_removed(fleet: Fleet) -> None:
    job_id = fleet.launch("pass")
    fleet.wait_settled(job_id)
    path = fleet.state(0) / "jobs" / job_id / "plan.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "version": 7}))
    report = fleet.report(0, job_id)
    assert report["problem"].startswith(f"job {job_id} has a plan of version 7, and this nodectl reads version 1")
    assert (report["state"]["state"], report["plan"]) == ("finished", None)
    (row,) = answer(fleet.ctl(0, "clean", job_id))
    assert (row["removed"], path.exists()) == (True, False)


def test_a_job_on_a_node_that_was_rebooted_has_ended_there_and_can_be_removed(fleet: Fleet) -> None:
    job_id = fleet.launch("pass")
    fleet.wait_settled(job_id)
    path = fleet.state(0) / "jobs" / job_id / "state.json"
    state = json.loads(path.read_text())
    assert state["boot_id"] == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    path.write_text(json.dumps({**state, "state": "running", "final": False, "boot_id": "an older one"}))
    report = fleet.report(0, job_id)
    assert (report["alive"], report["state"]["state"], report["state"]["final"]) == (False, "failed", True)
    cause = first(report["state"]["failures"])
    assert cause is not None
    assert (cause["kind"], cause["message"]) == ("rebooted", "the node was rebooted while the job ran there")
    assert [row["removed"] for row in answer(fleet.ctl(0, "clean", job_id))] == [True]
