"""Who is told of a job, by which host, and what: its end, its restarts, its stalls; nobody is at the terminal."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from nodectl.payload.jobs.evidence import line_of
from tests.payload.fleet import Fleet, answer, free_port
from tests.payload.receiver import Receiver, receiver

ALL = ["job-end", "job-stall", "job-restart"]
UP = "import os, sys, time\nprint('up', flush=True)\n"
SECRET = "s3cr3t-0123456789"  # noqa: S105 - planted


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with receiver() as server:
        yield server


@pytest.fixture
def fleet(tmp_path: Path, told: Receiver) -> Iterator[Fleet]:
    made = Fleet(tmp_path, 3, receivers=({"name": "a", "form": "json", "url": told.url, "token": SECRET, "on": ALL},))
    yield made
    made.close()


def events(server: Receiver) -> list[tuple[str, Any, Any]]:
    return [(body["event"], body["host"], body.get("state")) for body in server.accepted]


def supervisor(fleet: Fleet, rank: int, job_id: str) -> int:
    pid: int = fleet.report(rank, job_id)["state"]["pid"]
    return pid


def test_a_good_end_is_told_once_by_one_host(fleet: Fleet, told: Receiver) -> None:
    job_id = fleet.launch(UP)
    fleet.wait_settled(job_id)
    fleet.wait(lambda: bool(told.accepted))
    assert [(body["id"], body["state"], body["cause"]) for body in told.accepted] == [
        (f"{job_id}-job-end-1", "finished", None)
    ]
    for rank in range(3):
        folder = fleet.state(rank) / "jobs" / job_id
        assert SECRET.encode() not in b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())


def test_a_failure_is_told_with_its_rank_and_line(fleet: Fleet, told: Receiver) -> None:
    note = "import json\n"
    script = UP + note + "if os.environ['RANK'] == '5':\n    sys.exit(7)\ntime.sleep(1000)\n"
    job_id = fleet.launch(script)
    fleet.wait_settled(job_id)
    fleet.wait(lambda: bool(told.accepted))
    (body,) = told.accepted
    assert (body["event"], body["state"], body["host"], body["job"]) == ("job-end", "failed", "host2", job_id)
    assert body["cause"]["rank"] == 5 and "rank 5" in body["text"] and "host2" in body["text"], body


@pytest.mark.slow
def test_the_next_host_tells_where_the_first_is_gone(fleet: Fleet, told: Receiver) -> None:
    job_id = fleet.launch(UP + "time.sleep(1000)\n")
    fleet.wait_up(job_id, "up", 2)
    os.kill(supervisor(fleet, 0, job_id), signal.SIGKILL)
    fleet.wait_settled(job_id)
    fleet.wait(lambda: bool(told.accepted))
    assert events(told) == [("job-end", "host0", "failed")]


def test_a_stop_is_told_with_who_did_it(fleet: Fleet, told: Receiver) -> None:
    job_id = fleet.launch(UP + "time.sleep(1000)\n")
    fleet.wait_up(job_id, "up", 2)
    for rank in range(3):
        fleet.ctl(rank, "stop", job_id, "ann")
    fleet.wait(lambda: bool(told.accepted))
    assert [(body["state"], "by ann" in body["text"]) for body in told.accepted] == [("stopped", True)]


@pytest.mark.slow
def test_restarts_are_told_in_their_order(fleet: Fleet, told: Receiver) -> None:
    script = (
        UP + "if os.environ['NODECTL_ATTEMPT'] == '1' and os.environ['RANK'] == '2':\n    os.kill(os.getpid(), 9)\n"
    )
    job_id = fleet.launch(script + "time.sleep(2)\n", restarts=2, nodes=3, least_nodes=3)
    fleet.wait_settled(job_id)
    fleet.wait(lambda: len(told.accepted) == 2)
    assert [body["id"] for body in told.accepted] == [f"{job_id}-job-restart-2", f"{job_id}-job-end-1"]
    assert told.accepted[0]["cause"]["rank"] == 2


def test_a_lone_host_whose_supervisor_is_killed_is_told_of_by_its_guard(tmp_path: Path, told: Receiver) -> None:
    fleet = Fleet(tmp_path, 1, receivers=({"name": "a", "form": "json", "url": told.url, "on": ALL},))
    try:
        job_id = fleet.launch(UP + "time.sleep(1000)\n")
        fleet.wait_up(job_id, "up", 2)
        os.kill(supervisor(fleet, 0, job_id), signal.SIGKILL)
        fleet.wait(lambda: bool(told.accepted))
        assert events(told) == [("job-end", "host0", "failed")]
    finally:
        fleet.close()


def test_the_line_of_a_traceback_is_the_users_own() -> None:
    frames = ("/n/jobs/x/code/train.py", 41), ("/venv/torch/nn.py", 900)
    text = "".join(f'  File "{path}", line {number}, in f\n    x\n' for path, number in frames)
    assert line_of(text) == "train.py line 41"
    assert line_of('  File "/a/b.py", line 3, in f') == "b.py line 3" and line_of("") == ""
    assert json.dumps(line_of(text))


def test_a_sender_that_was_killed_goes_on_when_somebody_looks_and_the_job_is_kept_until_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    fleet = Fleet(tmp_path, 1, receivers=({"name": "a", "form": "json", "url": url, "on": ALL},))
    job_id = fleet.launch(UP)
    fleet.wait_settled(job_id)
    (sender,) = senders(job_id)
    os.kill(sender, signal.SIGKILL)
    (row,) = answer(fleet.ctl(0, "clean", job_id))
    assert not row["removed"] and "not delivered" in row["problem"]
    (message,) = answer(fleet.ctl(0, "untold"))
    assert (message["job"], message["receiver"], message["waits"]) == (job_id, "a", True)
    with receiver(port=port) as late:
        fleet.wait(lambda: bool(late.accepted))
        assert late.ids() == [f"{job_id}-job-end-1"]
        fleet.wait(lambda: answer(fleet.ctl(0, "untold")) == [])
    assert answer(fleet.ctl(0, "clean", job_id))[0]["removed"]
    fleet.wait(lambda: not senders(job_id))


@pytest.mark.slow
def test_a_standstill_is_told_and_that_it_passed(fleet: Fleet, told: Receiver) -> None:
    script = UP + "for step in range(1, 100):\n    print(f'step {step}/99 loss 1.0', flush=True)\n"
    job_id = fleet.launch(script + "    time.sleep(45 if step == 60 else 0.2)\n")
    fleet.wait_settled(job_id, timeout_s=200)
    fleet.wait(lambda: len(told.accepted) >= 3)
    assert [event for event, *_ in events(told)] == ["job-stall", "job-goes-on", "job-end"]
    assert re.search(r"stands still for [2-4]\d s", told.accepted[0]["title"]), told.accepted[0]


def senders(job_id: str) -> list[int]:
    found = []
    for path in Path("/proc").glob("[1-9]*/cmdline"):
        with suppress(OSError):
            words = path.read_text().split("\0")
            if "notify.send" in words and any(job_id in word for word in words):
                found.append(int(path.parent.name))
    return found
