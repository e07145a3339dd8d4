"""A job's events: which host runs `on_event`, what it is given, and that nothing of it reaches or ends with the job."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.payload.fleet import Fleet

UP = "import os, sys, time\nprint('up', flush=True)\n"
FAILS = UP + "if os.environ['RANK'] == '5':\n    sys.exit(7)\ntime.sleep(1000)\n"


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    made = Fleet(tmp_path, 3)
    yield made
    made.close()


def hook(folder: Path) -> list[str]:
    """A program that appends the event to a file, a line each."""
    code = f"import sys; open({str(folder / 'events')!r}, 'a').write(sys.stdin.read() + '\\n')"
    return [sys.executable, "-S", "-c", code]


def events(fleet: Fleet, count: int) -> list[dict[str, Any]]:
    path = fleet.root / "events"
    fleet.wait(lambda: path.exists() and len(path.read_text().splitlines()) >= count)
    return [json.loads(line) for line in path.read_text().splitlines()]


def supervisor(fleet: Fleet, rank: int, job_id: str) -> int:
    pid: int = fleet.report(rank, job_id)["state"]["pid"]
    return pid


def test_one_host_reports_a_good_end_once(fleet: Fleet) -> None:
    job_id = fleet.launch(UP, on_event=hook(fleet.root))
    fleet.wait_settled(job_id)
    (event,) = events(fleet, 1)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", event.pop("time"))
    assert event == {
        "schema": "nodectl.event/1", "event": "job_ended", "host": None, "job": job_id,
        "summary": f"job {job_id} (script.py) finished", "details": {"state": "finished", "cause": None},
    }  # fmt: skip


def test_reports_a_failure_with_its_rank(fleet: Fleet) -> None:
    job_id = fleet.launch(FAILS, on_event=hook(fleet.root))
    fleet.wait_settled(job_id)
    (event,) = events(fleet, 1)
    assert (event["event"], event["host"], event["details"]["state"]) == ("job_ended", "host2", "failed")
    assert event["details"]["cause"]["rank"] == 5 and "rank 5" in event["summary"], event


def test_reports_a_stop_with_its_operator(fleet: Fleet) -> None:
    job_id = fleet.launch(UP + "time.sleep(1000)\n", on_event=hook(fleet.root))
    fleet.wait_up(job_id, "up", 2)
    for rank in range(3):
        fleet.ctl(rank, "stop", job_id, "ann")
    (event,) = events(fleet, 1)
    assert event["details"] == {"state": "stopped", "cause": None} and "by ann" in event["summary"]


@pytest.mark.slow
def test_reports_restarts_in_order(fleet: Fleet) -> None:
    script = (
        UP + "if os.environ['NODECTL_ATTEMPT'] == '1' and os.environ['RANK'] == '2':\n    os.kill(os.getpid(), 9)\n"
    )
    job_id = fleet.launch(script + "time.sleep(2)\n", restarts=2, nodes=3, least_nodes=3, on_event=hook(fleet.root))
    fleet.wait_settled(job_id)
    restart, end = events(fleet, 2)
    assert (restart["event"], restart["details"]["attempt"], end["event"]) == ("job_restarted", 2, "job_ended")
    assert restart["details"]["cause"]["rank"] == 2 and restart["host"] == "host1"


@pytest.mark.slow
def test_the_next_host_reports_if_the_first_is_gone(fleet: Fleet) -> None:
    job_id = fleet.launch(UP + "time.sleep(1000)\n", on_event=hook(fleet.root))
    fleet.wait_up(job_id, "up", 2)
    os.kill(supervisor(fleet, 0, job_id), signal.SIGKILL)
    fleet.wait_settled(job_id)
    (event,) = events(fleet, 1)
    assert (event["event"], event["host"], event["details"]["state"]) == ("job_ended", "host0", "failed")


def test_a_program_that_fails_is_logged_and_changes_nothing_of_the_job(tmp_path: Path) -> None:
    fleet = Fleet(tmp_path, 1)
    job_id = fleet.launch(UP, on_event=["sh", "-c", "echo no route >&2; exit 6"])
    fleet.wait_settled(job_id)
    log = fleet.state(0) / "jobs" / job_id / "supervisor.log"
    assert fleet.report(0, job_id)["state"]["state"] == "finished"
    fleet.wait(lambda: "on_event: job_ended: sh ended with exit status 6: no route" in log.read_text())


def test_ranks_do_not_inherit_the_words_of_the_program(fleet: Fleet) -> None:
    secret = "s3cr3t-0123456789"  # noqa: S105 - planted
    job_id = fleet.launch(UP + f"print({secret[:6]!r} in str(os.environ))\n", on_event=[*hook(fleet.root), secret])
    fleet.wait_settled(job_id)
    assert secret not in json.dumps([*events(fleet, 1), *fleet.reports(job_id)])
    assert "True" not in fleet.output(0, job_id) and "False" in fleet.output(0, job_id)


@pytest.mark.slow
def test_reports_a_standstill(fleet: Fleet) -> None:
    script = UP + "for step in range(1, 100):\n    print(f'step {step}/99 loss 1.0', flush=True)\n"
    job_id = fleet.launch(script + "    time.sleep(45 if step == 60 else 0.2)\n", on_event=hook(fleet.root))
    fleet.wait_settled(job_id, timeout_s=200)
    stall, end = events(fleet, 2)
    assert (stall["event"], end["event"]) == ("job_stalled", "job_ended")
    assert re.search(r"has made no progress for [2-4]\d s", stall["summary"]), stall
    assert 20 <= stall["details"]["stalled_s"] < 50
